"""One run of a job: due or not, locked, recorded, and its checkpoint moved with its own writes or not at all."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.contracts.names import LOCKS_BUCKET
from shared.db.session import Database
from shared.jobs.context import JobContext
from shared.jobs.errors import JobNotStartedError, JobTimedOutError, LockLostError
from shared.jobs.lock import JobLock
from shared.jobs.outcome import JobOutcome, JobStatus
from shared.jobs.periodic import periodic
from shared.jobs.runner import JobRunner
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream
from shared.messaging.streams import ensure_streams
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.jobs.conftest import books, clock, new_runner, state

DAY_MS = 86_400_000
WRITE = text("INSERT INTO outbox (organisation_id, topic, key) VALUES (gen_random_uuid(), 'tally', :key)")


class Tally:
    """Adds rows to a table of its own and keeps its place in the checkpoint; a test says what goes wrong."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.seen: list[dict[str, Any] | None] = []
        self.fault: BaseException | None = None
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.gate.set()

    # Once a day: an hour may be over, by chance, between two runs of a test.
    @periodic("tally", every="1d", lock="30s", timeout="20s", silence_after="2d")
    async def tally(self, context: JobContext) -> None:
        self.seen.append(context.checkpoint)
        place = (context.checkpoint or {"place": 0})["place"] + 1
        async with context.transaction() as session:
            await session.execute(WRITE, {"key": str(place)})
            context.checkpoint = {"place": place}
            context.processed += 1
            self.started.set()
            await self.gate.wait()
            if self.fault:
                raise self.fault
        context.raise_if_timed_out()

    async def written(self) -> list[str]:
        async with self.database.system() as session:
            return list(await session.scalars(text("SELECT key FROM outbox WHERE topic = 'tally' ORDER BY id")))


@pytest.fixture
async def tally(database: Database, runner: JobRunner) -> Tally:
    made = Tally(database)
    await runner.register([made.tally])
    return made


async def test_a_run_is_recorded_with_its_checkpoint(database: Database, runner: JobRunner, tally: Tally) -> None:
    outcome = await runner.run(tally.tally)
    assert (outcome.status, outcome.processed, outcome.error) == (JobStatus.SUCCEEDED, 1, None)
    row = await state(database, "tally")
    assert (row.checkpoint, row.last_status, row.runs, row.failures) == ({"place": 1}, "succeeded", 1, 0)
    assert row.last_started_at is not None
    assert row.last_success_at is not None
    assert row.last_started_at <= row.last_success_at == row.last_finished_at


async def test_a_job_that_is_not_due_does_nothing_unless_forced(
    database: Database, runner: JobRunner, tally: Tally
) -> None:
    await runner.run(tally.tally)
    assert (await runner.run(tally.tally)).status is JobStatus.NOT_DUE
    assert await tally.written() == ["1"]
    assert (await books(database, "tally"))["runs"] == 1
    assert (await runner.run(tally.tally, forced=True)).status is JobStatus.SUCCEEDED
    assert tally.seen == [None, {"place": 1}]
    later = clock.now_ms() + 2 * DAY_MS
    assert (await runner.run(tally.tally, slot_ms=later)).status is JobStatus.SUCCEEDED


async def test_an_exception_is_recorded_and_passed_on_and_leaves_the_checkpoint(
    database: Database, runner: JobRunner, tally: Tally
) -> None:
    await runner.run(tally.tally)
    tally.fault = ValueError("no such place")
    with pytest.raises(ValueError, match="no such place"):
        await runner.run(tally.tally, forced=True)
    row = await state(database, "tally")
    assert (row.last_status, row.last_error, row.failures) == ("failed", "ValueError: no such place", 1)
    assert row.checkpoint == {"place": 1}
    assert await tally.written() == ["1"], "what the run wrote is taken back"
    assert row.last_success_at is not None
    assert row.last_finished_at is not None
    assert row.last_success_at < row.last_finished_at
    tally.fault = None
    assert (await runner.attempt(tally.tally, slot_ms=clock.now_ms() + DAY_MS)).is_success
    assert tally.seen == [None, {"place": 1}, {"place": 1}]


async def test_a_checkpoint_set_outside_of_a_transaction_is_stored_by_success_only(
    database: Database, runner: JobRunner
) -> None:
    class Place:
        fails = True

        @periodic("place", every="1h", lock="3s", timeout="1s", silence_after="2h")
        async def move(self, context: JobContext) -> None:
            context.checkpoint = {"here": True}
            if self.fails:
                raise RuntimeError

    place = Place()
    await runner.register([place.move])
    assert (await runner.attempt(place.move)).status is JobStatus.FAILED
    assert (await state(database, "place")).checkpoint is None
    place.fails = False
    assert (await runner.attempt(place.move)).is_success
    assert (await state(database, "place")).checkpoint == {"here": True}


async def test_a_second_run_at_the_same_time_is_skipped_and_counted(
    database: Database, connection: NatsConnection, runner: JobRunner, tally: Tally
) -> None:
    tally.gate.clear()
    running = asyncio.create_task(runner.run(tally.tally))
    await tally.started.wait()
    assert (await new_runner(database, connection).run(tally.tally)).status is JobStatus.SKIPPED
    tally.gate.set()
    assert (await running).status is JobStatus.SUCCEEDED
    assert await tally.written() == ["1"]
    assert (await books(database, "tally"))["skipped"] == 1
    assert (await runner.run(tally.tally)).status is JobStatus.NOT_DUE, "the lock is free again"


async def test_of_many_triggers_at_once_one_runs(
    database: Database, connection: NatsConnection, tally: Tally
) -> None:
    runs = [new_runner(database, connection).run(tally.tally) for _ in range(8)]
    statuses = [outcome.status for outcome in await asyncio.gather(*runs)]
    assert statuses.count(JobStatus.SUCCEEDED) == 1
    assert set(statuses) <= {JobStatus.SUCCEEDED, JobStatus.SKIPPED, JobStatus.NOT_DUE}
    assert await tally.written() == ["1"]


async def test_an_overrun_is_noticed_by_the_job_and_on_return(database: Database, runner: JobRunner) -> None:
    class Slow:
        @periodic("careful", every="1h", lock="3s", timeout="1s", silence_after="2h")
        async def look_at_the_clock(self, context: JobContext) -> None:
            await asyncio.sleep(1.1)
            context.raise_if_timed_out()

        @periodic("slow", every="1h", lock="3s", timeout="1s", silence_after="2h")
        async def sleep(self, _: JobContext) -> None:
            await asyncio.sleep(1.1)

    slow = Slow()
    await runner.register([slow.look_at_the_clock, slow.sleep])
    timed_out, overran = await asyncio.gather(runner.attempt(slow.look_at_the_clock), runner.attempt(slow.sleep))
    assert (timed_out.status, overran.status) == (JobStatus.TIMED_OUT, JobStatus.OVERRAN)
    assert (await books(database, "careful"))["timeouts"] == 1
    row = await state(database, "slow")
    assert (row.timeouts, row.failures, row.last_error) == (1, 0, overran.error)
    assert row.last_success_at is not None


async def test_an_overrun_keeps_its_lock_and_may_commit(database: Database, runner: JobRunner) -> None:
    class Long:
        may_end = asyncio.Event()

        @periodic("long", every="1h", lock="4s", timeout="1s", silence_after="2h")
        async def work(self, context: JobContext) -> None:
            await asyncio.sleep(4.5)  # longer than its lock lives without a renewal
            await self.may_end.wait()
            async with context.transaction():
                context.checkpoint = {"done": True}

    long = Long()
    await runner.register([long.work])

    async def run_beside_it() -> JobOutcome:
        await asyncio.sleep(4.5)
        outcome = await runner.run(long.work)
        long.may_end.set()
        return outcome

    outcomes = await asyncio.gather(runner.run(long.work), run_beside_it())
    assert [outcome.status for outcome in outcomes] == [JobStatus.OVERRAN, JobStatus.SKIPPED]
    assert (await state(database, "long")).checkpoint == {"done": True}


async def test_a_run_that_hangs_is_cancelled_and_its_job_runs_again(database: Database, runner: JobRunner) -> None:
    class Hangs:
        hangs = True

        @periodic("hangs", every="1h", lock="1s", timeout="1s", silence_after="2h")
        async def wait(self, _: JobContext) -> None:
            if self.hangs:
                await asyncio.Event().wait()

    job = Hangs()
    await runner.register([job.wait])
    with pytest.raises(JobTimedOutError, match="cancelled after 2 s"):
        await runner.run(job.wait)
    job.hangs = False
    assert (await runner.run(job.wait)).status is JobStatus.SUCCEEDED


async def test_a_run_that_was_overtaken_commits_nothing(
    database: Database, connection: NatsConnection, runner: JobRunner, tally: Tally
) -> None:
    tally.gate.clear()
    first = asyncio.create_task(runner.run(tally.tally))
    await tally.started.wait()
    await connection.js.purge_stream(bucket_stream(LOCKS_BUCKET))
    second = Tally(database)
    assert (await new_runner(database, connection).run(second.tally)).status is JobStatus.SUCCEEDED
    tally.gate.set()
    with pytest.raises(LockLostError):
        await first
    assert await tally.written() == ["1"]
    counted = await books(database, "tally")
    assert (counted["runs"], counted["last_status"], counted["checkpoint"]) == (2, "succeeded", {"place": 1})


async def test_a_lock_ends_with_its_holder_and_is_renewed_while_that_lives(connection: NatsConnection) -> None:
    def lock() -> JobLock:
        async def ensure() -> None:
            await ensure_streams(connection.js)

        return JobLock(connection, "kept", uuid4().hex, ttl=3, ensure=ensure, clock=clock)

    holder, other = lock(), lock()
    assert await holder.acquire()
    renewal = asyncio.create_task(holder.keep())
    began = clock.monotonic()
    while clock.monotonic() - began < 3.5:
        assert holder.holds()
        assert not await other.acquire()
        await asyncio.sleep(0.1)
    renewal.cancel()  # as if it died
    await asyncio.gather(renewal, return_exceptions=True)
    await eventually("the lock is free", other.acquire)
    assert not holder.holds()
    await holder.release()
    assert not await lock().acquire(), "who lost it can't release it"
    await other.release()
    assert await lock().acquire()


async def test_a_bucket_of_locks_that_is_gone_is_made_anew(
    database: Database, connection: NatsConnection, runner: JobRunner, tally: Tally
) -> None:
    await runner.run(tally.tally)
    await connection.js.delete_stream(bucket_stream(LOCKS_BUCKET))
    assert (await runner.run(tally.tally, forced=True)).status is JobStatus.SUCCEEDED
    assert (await state(database, "tally")).fence == 2


async def test_without_servers_a_run_does_not_start_and_says_so(
    nats: NatsServer, runner: JobRunner, tally: Tally
) -> None:
    await nats.stop()
    with pytest.raises(JobNotStartedError, match="job tally could not start"):
        await runner.run(tally.tally)
    assert await tally.written() == []
    await nats.start()

    async def runs() -> bool:
        try:
            return (await runner.run(tally.tally)).is_success
        except JobNotStartedError:
            return False

    await eventually("it runs again", runs)


async def test_a_run_whose_process_was_killed_counts_as_a_failure(
    database: Database, runner: JobRunner, tally: Tally
) -> None:
    async with database.system() as session:
        await session.execute(text("UPDATE jobs SET last_status = 'running', runs = 1, fence = 1"))
    await runner.run(tally.tally)
    assert (await books(database, "tally"))["failures"] == 1


async def test_a_run_whose_process_stops_is_recorded_and_frees_the_lock(
    database: Database, runner: JobRunner, tally: Tally
) -> None:
    tally.gate.clear()
    running = asyncio.create_task(runner.run(tally.tally))
    await tally.started.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert (await state(database, "tally")).last_error == "its process stopped"
    tally.gate.set()
    assert (await runner.run(tally.tally)).status is JobStatus.SUCCEEDED
