"""One worker process with a NATS of its own, and checks handed to it one by one: is it deaf?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from shared.contracts import names
from shared.contracts.sealing import Sealer
from shared.contracts.wire import CheckOrder
from shared.domain.checks_http import HttpCheck
from shared.messaging.connect import connect
from shared.messaging.streams import ensure_streams
from shared.messaging.task_format import encode_task
from shared.testing.nats import FlakyProxy, NatsServer, free_port
from shared.testing.tocsin import eventually
from tests.chaos.installation import MODULES, SECRET_KEY, clock, environment
from tests.chaos.processes import Service


class LoneWorker:
    """It does not record, so it needs no PostgreSQL; results are counted where they wait."""

    def __init__(self, folder: Path) -> None:
        self.nats = NatsServer(folder / "nats")
        self.proxy = FlakyProxy(self.nats.port)
        self._folder = folder
        self._stack = AsyncExitStack()
        self._expected = b""
        check = HttpCheck(url=f"http://127.0.0.1:{free_port()}/")
        run = {"check": Sealer([SECRET_KEY]).seal(check, None), "timeout_seconds": 2, "retries": 0}
        self._run = msgspec.Raw(msgspec.json.encode({**run, "retry_delay_seconds": 0}))

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[JetStreamContext]:
        """A fresh connection of an operator, past the proxy."""
        connection = await connect([self.nats.url], name="chaos", buffer_writes=False)
        try:
            yield connection.js
        finally:
            await connection.close()

    async def __aenter__(self) -> Self:
        self._folder.mkdir()
        await self._stack.enter_async_context(self.nats)
        await self._stack.enter_async_context(self.proxy)
        async with self.jetstream() as js:
            await ensure_streams(js)
        settings = {
            "TOCSIN_NATS_URL": self.proxy.url,
            "TOCSIN_RECORDER": "false",
            "TOCSIN_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        }
        log = self._folder / "worker.log"
        service = Service(
            "worker", (MODULES["worker"],), free_port(), environment("worker", self._folder, settings), log
        )
        self._stack.push_async_callback(service.end)
        await service.start()
        await service.wait_until_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def seconds_to_run_a_check(self) -> float:
        """From now, with a healed NATS, until a check that is handed over now has its result in the queue."""
        began = clock.monotonic()
        async with self.jetstream() as js:
            await eventually("the check is handed over", lambda: self._publish(js), within=30, every=0.1)
            await eventually("the check has a result", lambda: self._has_result(js), within=30, every=0.02)
        return clock.monotonic() - began

    async def _publish(self, js: JetStreamContext) -> bool:
        """A check of a monitor of its own, so that no subject is occupied."""
        now, monitor_id = clock.now_ms(), uuid4()
        order = CheckOrder(
            monitor_id=monitor_id, revision=1, region="default", slot_ms=now, interval_ms=60_000, run=self._run
        )
        payload = encode_task(names.RUN_CHECK_TASK, order.key.message_id, msgspec.json.encode(order))
        self._expected = str(monitor_id).encode()
        try:
            await js.publish(names.check_subject("default", monitor_id), payload)
        except NatsError:
            return False
        return True

    async def _has_result(self, js: JetStreamContext) -> bool:
        try:
            message = await js.get_last_msg(names.RESULTS_STREAM, names.result_subject("default"))
        except NatsError:
            return False
        return self._expected in (message.data or b"")


async def side_by_side(workers: list[LoneWorker], stack: AsyncExitStack) -> None:
    await asyncio.gather(*(stack.enter_async_context(worker) for worker in workers))
