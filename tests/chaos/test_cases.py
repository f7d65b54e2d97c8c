"""Failures that other systems had in the field, each named by the case it comes from."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import linear_regression
from uuid import UUID, uuid4

import msgspec
import pytest
from nats.errors import MaxPayloadError
from sqlalchemy import text

from shared.contracts import names
from shared.db.session import Database
from shared.messaging.connect import connect
from shared.messaging.declarations import bucket_subject
from shared.messaging.streams import ensure_streams
from shared.messaging.task_format import encode_task
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.chaos import nats_faults
from tests.chaos.books import Books, read_books, run_twice
from tests.chaos.installation import Installation, clock
from tests.chaos.nats_faults import jetstream
from tests.chaos.processes import Service
from tests.chaos.suite import all_on_time_after, settled_books
from tests.chaos.test_schedule_reads import encoded, read, writing

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.timeout(400)]


async def come_back_after_five_seconds(chaos: Installation) -> int:
    await chaos.nats.kill()
    await asyncio.sleep(5)
    await chaos.nats.start()
    return clock.now_ms()


@pytest.mark.parametrize(
    "fault",
    [come_back_after_five_seconds, nats_faults.lose_everything, nats_faults.delete_worker_consumer],
    ids=["killed, back after 5 s", "back with an empty store", "consumer deleted"],
)
async def test_o_queue_01_checks_resume_within_fifteen_seconds_without_a_restart(
    tmp_path: Path, fault: Callable[[Installation], Awaitable[int]]
) -> None:
    async with Installation(tmp_path) as chaos:
        await chaos.create_monitors([f"/m/{number}" for number in range(20)])
        await all_on_time_after(chaos, clock.now_ms())
        processes = {name: service.pid for name, service in chaos.services.items()}
        begins = clock.now_ms()
        healed = await fault(chaos)
        await all_on_time_after(chaos, healed)
        assert clock.now_ms() - healed < 15_000
        assert all(service.is_running for service in chaos.services.values())
        assert processes == {name: service.pid for name, service in chaos.services.items()}
        books = await settled_books(chaos, begins, clock.now_ms(), within=240)
        assert (books.unaccounted, books.doubled, books.alarms) == ((), [], [])


async def test_o_queue_02_a_check_slower_than_the_ack_deadline_runs_once(tmp_path: Path) -> None:
    """The target answers after 6 s, the queue would offer the check again after 4."""
    async with Installation(tmp_path) as chaos:
        path = "/slow/6/0"
        await chaos.create_monitors([path], interval_seconds=10, timeout_seconds=9)
        begins = clock.now_ms() - 10_000
        await eventually("three results", lambda: results(chaos, begins, 3), within=60, every=0.5)
        books = await read_books(chaos.database_url, begins, clock.now_ms())
        asked = await chaos.requests_since(begins)
        assert books.doubled == []
        assert run_twice(books.run, asked[: len(books.run)], chaos.paths) == []

        await kill_the_worker_that_checks(chaos)
        await chaos.start(chaos.workers)
        killed = clock.now_ms()
        await eventually("three more", lambda: results(chaos, killed, 3), within=60, every=0.5)
        books = await settled_books(chaos, begins, clock.now_ms() - 8_000, within=20)
        assert (books.unaccounted, books.doubled, books.alarms) == ((), [], [])
        asked = [entry for entry in await chaos.requests_since(begins) if entry[1] <= books.ends_ms]
        assert len(run_twice(books.run, asked, chaos.paths)) <= 1


async def kill_the_worker_that_checks(chaos: Installation) -> None:
    async def checking() -> Service | None:
        for worker in chaos.workers:
            if await worker.metric("tocsin_checks_in_flight"):
                return worker
        return None

    worker: Service = await eventually("a worker checks", checking, within=20)
    await worker.kill()


async def results(chaos: Installation, since_ms: int, number: int) -> bool:
    return len((await read_books(chaos.database_url, since_ms, clock.now_ms())).run) >= number


async def test_o_queue_03_poison_is_settled_and_healthy_monitors_keep_their_cadence(tmp_path: Path) -> None:
    async with Installation(tmp_path) as chaos:
        await chaos.create_monitors([f"/m/{number}" for number in range(20)])
        await all_on_time_after(chaos, clock.now_ms())
        begins = clock.now_ms()
        async with jetstream(chaos) as js:
            for payload in (
                b"\x00\xff not a task",
                encode_task("no_such_task", "poison-1", b"{}"),
                encode_task(names.RUN_CHECK_TASK, "poison-2", b'{"slot_ms": "yesterday"}'),
                encode_task(names.RUN_CHECK_TASK, "poison-3", b"[1, 2, 3]"),
                deleted_monitor(),
            ):
                await js.publish(names.check_subject("default", uuid4()), payload)
            with pytest.raises(MaxPayloadError):  # the server's limit of 1 MiB keeps it out
                await js.publish(names.check_subject("default", uuid4()), bytes(2_000_000))

            async def settled() -> bool:
                return bool((await js.stream_info(names.CHECKS_STREAM)).state.messages == 0)

            await eventually("nothing is left in the queue", settled, within=90, every=0.05)
            letters = (await js.stream_info(names.DEAD_LETTERS_STREAM)).state.messages
        assert letters == 4, "all but the check of the deleted monitor, which is run and forgotten"
        ends = clock.now_ms()
        books = await settled_books(chaos, begins, ends, within=30)
        assert (books.unaccounted, books.missed, books.alarms) == ((), [], [])
        assert books.latest_ms() < 1_000


def deleted_monitor() -> bytes:
    """The check of a monitor that nobody knows."""
    order = {
        "monitor_id": str(uuid4()),
        "revision": 1,
        "region": "default",
        "slot_ms": clock.now_ms(),
        "interval_ms": 60_000,
        "run": {
            "check": {"kind": "http", "url": "http://127.0.0.1:9/"},
            "timeout_seconds": 2,
            "retries": 0,
            "retry_delay_seconds": 0,
        },
    }
    return encode_task(names.RUN_CHECK_TASK, "poison-4", msgspec.json.encode(order))


async def test_o_queue_04_an_empty_bucket_does_not_block_the_start(tmp_path: Path) -> None:
    async with Installation(tmp_path) as chaos:
        for scheduler in chaos.schedulers:
            await scheduler.terminate()
        began = clock.monotonic()
        await chaos.start(chaos.schedulers)
        assert clock.monotonic() - began < 5


async def test_o_queue_04_two_hundred_keys_are_always_two_hundred(nats: NatsServer) -> None:
    connection = await connect([nats.url], name="reader", buffer_writes=False)
    await ensure_streams(connection.js)
    monitors = [uuid4() for _ in range(200)]
    for monitor in monitors:
        subject = bucket_subject(names.SCHEDULES_BUCKET, str(monitor))
        await connection.js.publish(subject, encoded(monitor, 1))
    async with writing(nats, monitors):
        assert Counter([await read(connection) for _ in range(500)]) == {200: 500}
    await connection.close()


async def test_o_time_01_a_monitor_runs_at_its_interval_and_does_not_drift(tmp_path: Path) -> None:
    """A minute at five seconds, against targets that take 50 to 900 ms and one that never answers in time."""
    delays = (0.05, 0.2, 0.4, 0.6, 0.9, 30.0)
    async with Installation(tmp_path) as chaos:
        await chaos.create_monitors([f"/slow/{delay}/0" for delay in delays])
        await all_on_time_after(chaos, clock.now_ms())
        begins = clock.now_ms()
        await asyncio.sleep(60)  # the span of time itself is what is measured
        books = await settled_books(chaos, begins, begins + 60_000, within=30)
        assert books.unaccounted == ()
        for path in chaos.paths.values():
            starts = starts_of(books, path)
            assert abs(len(starts) - 12) <= 1
            assert max(later - earlier for earlier, later in itertools.pairwise(starts)) < 1.5 * 5_000
            slope = linear_regression(
                range(len(starts)), [start - 5_000 * n for n, start in enumerate(starts)]
            ).slope
            assert abs(slope) < 5, "milliseconds a slot: noise of this machine, no drift"


def starts_of(books: Books, monitor_id: UUID) -> list[int]:
    return sorted(row.started_ms or 0 for row in books.run if row.key.monitor_id == monitor_id)


async def test_o_state_01_a_restart_is_not_a_transition(tmp_path: Path) -> None:
    """Down stays down, since the same moment, whoever is killed; and it is never pending again."""
    async with Installation(tmp_path) as chaos:
        await chaos.create_monitors(["/m/0"], failure_threshold=3)
        monitor_id = chaos.paths["/m/0"]
        await eventually("up", lambda: has_status(chaos, monitor_id, "up"), within=15)
        await chaos.answer_with(500)
        await eventually("down", lambda: has_status(chaos, monitor_id, "down"), within=30)
        since = (await chaos.monitor(monitor_id))["status_since"]
        seen = Counter[str]()
        for name in ("api", "scheduler-1", "worker-1") * 3:
            service = chaos.services[name]
            service.send(signal.SIGKILL)
            await service.wait()
            await chaos.start([service])
            seen[(await chaos.monitor(monitor_id))["status"]] += 1
        killed = clock.now_ms()
        await eventually("ten more failures", lambda: results(chaos, killed, 10), within=70, every=1)
        monitor = await chaos.monitor(monitor_id)
        assert (monitor["status"], monitor["status_since"]) == ("down", since)
        assert set(seen) == {"down"}
        assert await told(chaos, monitor_id) == ["opened"]
        await chaos.answer_with(200)
        await eventually("up", lambda: has_status(chaos, monitor_id, "up"), within=15)
        assert await told(chaos, monitor_id) == ["opened", "resolved"]


async def told(chaos: Installation, monitor_id: UUID) -> list[str]:
    """What went out to people about the one incident of a monitor."""
    query = text(
        "SELECT e.incident_id, e.detail->>'tell' FROM incident_events AS e"
        " JOIN incidents AS i ON i.id = e.incident_id"
        " WHERE i.monitor_id = :id AND e.detail->>'tell' IS NOT NULL ORDER BY e.id"
    )
    async with Database(chaos.database_url, application_name="chaos") as database, database.system() as session:
        rows = (await session.execute(query, {"id": monitor_id})).all()
    assert len({row[0] for row in rows}) == 1
    return [row[1] for row in rows]


async def has_status(chaos: Installation, monitor_id: UUID, status: str) -> bool:
    return bool((await chaos.monitor(monitor_id))["status"] == status)
