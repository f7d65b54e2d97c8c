"""Pipelines as tasks: real workers, killed at exact moments, and what is left of the run each time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.errors import JournalConflictError
from shared.tasks.letters import EVERYTHING
from shared.tasks.pipeline import Finish, next_action
from shared.tasks.pipeline_journal import PipelineJournals
from shared.tasks.pipeline_record import WORKER_LOST, PipelineRecord
from shared.tasks.queue import TaskQueue
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.tasks.pipeline_process import PLACE, Order, declared

WITHIN = 90.0


class Shop:
    """A server, a sender, and workers that come and go."""

    def __init__(self, url: str, connection: NatsConnection, publisher: Publisher, log: Path) -> None:
        self._url, self._log = url, log
        log.touch()
        self.queue = TaskQueue(publisher, SystemClock())
        self.letters = DeadLetterDesk(connection, publisher)
        self.journals = PipelineJournals(connection, publisher, SystemClock())

    async def send(self, number: int) -> None:
        await self.queue.send(declared()[1], Order(number), task_id=f"order:{number}")

    @contextlib.asynccontextmanager
    async def worker(self, writes: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.tasks.pipeline_process", self._url, str(self._log), str(writes)
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()

    def ran(self, number: int) -> list[str]:
        """The steps of an order that ran, in order."""
        lines = (line.split() for line in self._log.read_text().splitlines())
        return [name for order, name in lines if order == str(number)]

    async def record(self, number: int) -> PipelineRecord:
        record = await self.journals.read("place_order", f"order:{number}")
        assert record is not None
        return record

    async def is_finished(self, number: int) -> bool:
        record = await self.journals.read("place_order", f"order:{number}")
        return record is not None and isinstance(next_action(PLACE, record, SystemClock().now_ms()), Finish)

    async def finished(self, number: int) -> PipelineRecord:
        await eventually(f"order {number} is done", lambda: self.is_finished(number), within=WITHIN)
        return await self.record(number)


@contextlib.asynccontextmanager
async def shop(server: NatsServer, folder: Path) -> AsyncIterator[Shop]:
    connection = await connect([server.url], name="test", buffer_writes=True)
    await ensure_streams(connection.js)
    try:
        async with Publisher(connection) as publisher:
            yield Shop(server.url, connection, publisher, folder / "log")
    finally:
        await connection.close()


FAILED_RUN = Counter({"reserve": 1, "charge": 3, "ship": 1, "refund": 1, "tidy": 1})


async def test_runs_end_as_their_steps_did_and_the_records_say_how(nats: NatsServer, tmp_path: Path) -> None:
    async with shop(nats, tmp_path) as place, place.worker():
        for number in (2, 3, 12):
            await place.send(number)
        fine, retried, failed = [await place.finished(number) for number in (2, 3, 12)]
        assert place.ran(2) == ["reserve", "charge", "ship", "tell", "tidy"]
        assert fine.of("charge").value == {"receipt": 2}
        assert fine.of("refund").state == "waiting"
        assert place.ran(3) == ["reserve", "charge", "charge", "charge", "ship", "tell", "tidy"]
        attempts = retried.of("charge").attempts
        assert [each.error and each.error.kind for each in attempts] == [
            "connection_error",
            "connection_error",
            None,
        ]
        begins = [each.started_ms for each in attempts]
        assert all(later - earlier >= 300 for earlier, later in pairwise(begins)), begins
        hooks = (tmp_path / "log.hooks").read_text().splitlines()
        assert hooks == [f"place_order.charge order:3 {number} ConnectionError" for number in (1, 2)]
        assert place.ran(12) == ["reserve", "charge", "ship", "refund", "tidy"]
        error = failed.of("ship").error
        assert error is not None
        assert (error.kind, error.message) == ("ValueError", "no such address")
        assert failed.of("refund").value == {"receipt": 12}
        [letter] = await eventually("the dead letter", lambda: place.letters.page(EVERYTHING))
        assert letter.attempts[-1].message == "step ship: ValueError: no such address"


async def test_a_killed_worker_changes_neither_what_runs_nor_the_outcome(tmp_path: Path) -> None:
    """Killed after reserve, at the third charge, before and after the refund, and before the dead letter."""
    await asyncio.gather(*(_killed_after(writes, tmp_path / str(writes)) for writes in (2, 7, 10, 12, 14)))


async def _killed_after(writes: int, folder: Path) -> None:
    folder.mkdir()
    async with NatsServer(folder / "nats") as server, shop(server, folder) as place:
        await place.send(13)
        async with place.worker(writes) as doomed:
            async with asyncio.timeout(WITHIN):
                assert await doomed.wait() == -signal.SIGKILL
        before = (await place.record(13)).steps
        async with place.worker():
            after = await place.finished(13)
            [letter] = await eventually("the letter", lambda: place.letters.page(EVERYTHING), within=WITHIN)
        assert Counter(place.ran(13)) == FAILED_RUN, f"killed after {writes} writes: {place.ran(13)}"
        assert letter.attempts[-1].message == "step ship: ValueError: no such address"
        kinds = [each.error_kind for each in letter.attempts]
        assert kinds == ["retry_later", "retry_later", "gave_up"], "one delivery for each wait, however many deaths"
        for name, seen in before.items():
            if seen.state in {"done", "failed"}:
                assert after.of(name) == seen, f"killed after {writes} writes: the record of {name} changed"
        lost = [each for each in after.of("charge").attempts if each.error and each.error.kind == WORKER_LOST]
        assert len(lost) == (1 if writes == 7 else 0)


async def test_of_two_workers_with_one_run_only_one_goes_on(nats: NatsServer, tmp_path: Path) -> None:
    async with shop(nats, tmp_path) as place:
        one, two = (place.journals.of("place_order", "x") for _ in range(2))
        assert await one.load() is None
        assert await two.load() is None
        await one.save(PipelineRecord(1))
        with pytest.raises(JournalConflictError):
            await two.save(PipelineRecord(2))
        assert await two.load() == PipelineRecord(1)
        await two.save(PipelineRecord(2))
