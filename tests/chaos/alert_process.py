"""The recorder, the relay and the notifier as processes of their own, each of which may die at a step."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.context import ForkServerProcess

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from monitoring_worker import recorder as recorder_module
from monitoring_worker.recorder import Recorder
from monitoring_worker.sweeping import IncidentSweeper
from shared.channels.tools import build_tools
from shared.contracts import names
from shared.contracts.sealing import Sealer
from shared.contracts.wire import ResultMessage
from shared.db.engine import PoolOptions
from shared.db.session import Database
from shared.domain import mass_failure
from shared.domain.clock import SystemClock
from shared.http.guard import AddressPolicy
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_recorder, ensure_streams
from shared.services import alerting, delivering, incident_ledger
from shared.services.alerting import AlertRelay
from shared.services.delivering import NOTIFICATIONS, Notifier, TaskDeliveryQueue
from shared.services.recording import record
from shared.tasks.letter_box import LetterBox
from shared.tasks.queue import TaskQueue
from shared.tasks.worker import TaskWorker
from tests.chaos.steps import Fuse

SECRET_KEY = "k" * 32
GATE = 4711
"""A lock in the database: whoever holds it holds up every recorder that is behind it."""
RECORDER_PREFETCH = 50

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.alert_process"])


@dataclass(frozen=True)
class Orders:
    """Where everything is, and where to die: at the ``count``-th time of ``step``; None lives on."""

    database_url: str
    nats_url: str
    step: str | None = None
    after: bool = True
    count: int = 1


class Part:
    """One of the processes: killed at a step, then started anew."""

    def __init__(self, name: str, work: Callable[[Orders], None], orders: Orders) -> None:
        self.name, self._work, self._orders = name, work, orders
        self._process: ForkServerProcess | None = None
        self.deaths: Counter[str] = Counter()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def start(self, step: str | None = None, *, after: bool = True, count: int = 1) -> None:
        orders = replace(self._orders, step=step, after=after, count=count)
        self._process = _context.Process(target=self._work, args=(orders,), daemon=True)
        self._process.start()

    async def dies(self, seconds: float) -> bool:
        """Wait for the end; False when the step was not reached in time: then it is killed wherever it is."""
        began = time.monotonic()
        while self.is_alive and time.monotonic() - began < seconds:  # noqa: ASYNC110 it is a process
            await asyncio.sleep(0.01)
        died = not self.is_alive
        self.stop()
        return died

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _prepare(orders: Orders) -> None:
    """Claims, holds and hand-overs run out within moments, so that two hundred rounds end today."""
    delivering.CLAIM = timedelta(seconds=1.5)
    delivering.AGAIN = timedelta(seconds=1)
    delivering.BLOCKED = timedelta(seconds=2)
    alerting.AGAIN_SECONDS = alerting.LONGEST_AGAIN_SECONDS = 3.0
    recorder_module.LINGER_SECONDS = 0.1
    mass_failure.HOLD_MS = 300
    incident_ledger.HOLD_MS = 300  # type: ignore[attr-defined]  # the ledger's own name for it
    if orders.step is not None:
        Fuse(orders.step, after=orders.after, count=orders.count)


def relay(orders: Orders) -> None:
    """The part of the API process that turns incidents into tasks."""
    _prepare(orders)
    asyncio.run(_relay(orders))


async def _relay(orders: Orders) -> None:
    clock = SystemClock()
    connection = await connect([orders.nats_url], name="relay", buffer_writes=False)
    await ensure_streams(connection.js)
    async with (
        Database(orders.database_url, application_name="relay") as database,
        Publisher(connection) as publisher,
    ):
        await AlertRelay(database, TaskDeliveryQueue(TaskQueue(publisher, clock)), clock).run()


def notifier(orders: Orders) -> None:
    """The part of a worker that sends."""
    _prepare(orders)
    asyncio.run(_notifier(orders))


async def _notifier(orders: Orders) -> None:
    clock = SystemClock()
    tools = build_tools(AddressPolicy(allow_private=True), clock)
    connection = await connect([orders.nats_url], name="notifier", buffer_writes=True)
    async with (
        Database(orders.database_url, application_name="notifier") as database,
        Publisher(connection) as publisher,
    ):
        worker = TaskWorker(connection, publisher, clock)
        worker.add(NOTIFICATIONS, Notifier(database, Sealer([SECRET_KEY]), tools, clock))
        await worker.listen(asyncio.Event())


def recorder(orders: Orders) -> None:
    """The part of a worker that stores results, and the sweep of alerts that wait."""
    _prepare(orders)
    asyncio.run(_record(orders))


def ten_recorders(orders: Orders) -> None:
    """Ten of them in one process, each with one result in hand and all behind the gate."""
    _prepare(orders)
    recorder_module.BATCH = 1
    recorder_module.record = _behind_the_gate  # type: ignore[attr-defined]  # the name under which it calls it
    asyncio.run(_record(orders, recorders=10, prefetch=1))


async def _record(orders: Orders, recorders: int = 1, prefetch: int = RECORDER_PREFETCH) -> None:
    clock = SystemClock()
    connection = await connect([orders.nats_url], name="recorder", buffer_writes=True)
    pool = PoolOptions(size=recorders + 4)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            Database(orders.database_url, application_name=f"recorder-{os.getpid()}", pool=pool)
        )
        letters = LetterBox(await stack.enter_async_context(Publisher(connection)))
        ensure = functools.partial(_ensure, connection)
        await ensure()
        work: list[Awaitable[None]] = [IncidentSweeper(database, clock).run()]
        for _ in range(recorders):
            pull = PullLoop(
                connection, names.RESULTS_STREAM, names.RECORDER_CONSUMER, ensure=ensure, batch=prefetch
            )
            await stack.enter_async_context(pull)
            work.append(Recorder(database, pull, clock, letters).run())
        await asyncio.gather(*work)


async def _ensure(connection: NatsConnection) -> None:
    await ensure_streams(connection.js)
    await ensure_recorder(connection.js)


async def _behind_the_gate(session: AsyncSession, messages: Sequence[ResultMessage], now_ms: int) -> int:
    await session.execute(text("SELECT pg_advisory_xact_lock_shared(:gate)"), {"gate": GATE})
    return await record(session, messages, now_ms)
