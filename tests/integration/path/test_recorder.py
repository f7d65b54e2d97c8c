"""Results reach the database once each, whatever happens to the database, the queue or the result itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text

from monitoring_worker.recorder import Recorder
from shared.contracts import names
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.result import CertificateFacts, CheckVerdict, ResultStatus, TlsFacts, missed
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_recorder
from shared.tasks.dead_letters import DeadLetterDesk, message_of
from shared.tasks.letter_box import LetterBox
from shared.tasks.letters import EVERYTHING, DeadLetter
from shared.testing.nats import NatsServer
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import eventually
from tests.integration.path.conftest import Tenant, make_tenant

clock = SystemClock()
UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens"))


def result(monitor_id: UUID, slot_ms: int, verdict: CheckVerdict = UP, region: str = "default") -> ResultMessage:
    started = None if verdict.status is ResultStatus.MISSED else slot_ms + 3
    return ResultMessage(monitor_id, 1, region, slot_ms, started, verdict)


class Desk:
    """Sends results into the queue and looks at what became of them."""

    def __init__(self, publisher: Publisher, database: Database, connection: NatsConnection) -> None:
        self._publisher, self._database, self._connection = publisher, database, connection

    async def send(self, *messages: ResultMessage) -> None:
        """Each in a message of its own, without an id: as if sent again after every fault."""
        for message in messages:
            await self.send_raw(msgspec.json.encode(ResultBatch((message,))))

    async def send_raw(self, payload: bytes) -> None:
        await self._publisher.send(names.result_subject("default"), payload)

    async def rows(self) -> list[Any]:
        async with self._database.system() as session:
            query = "SELECT monitor_id, scheduled_at, status, error_kind FROM check_results ORDER BY scheduled_at"
            return list(await session.execute(text(query)))

    async def statuses(self) -> list[str]:
        return [row.status for row in await self.rows()]

    async def state(self, monitor_id: UUID) -> Any:
        async with self._database.system() as session:
            query = text("SELECT * FROM monitor_state WHERE monitor_id = :id")
            return (await session.execute(query, {"id": monitor_id})).one()

    async def certificates(self) -> list[tuple[Any, ...]]:
        async with self._database.system() as session:
            query = "SELECT monitor_id, fingerprint_sha256, facts->>'issuer' FROM certificates"
            return [tuple(row) for row in await session.execute(text(query))]

    async def stored(self, number: int, within: float = 60.0) -> None:
        async def enough() -> bool:
            return len(await self.rows()) >= number

        await eventually(f"{number} results are stored", enough, within=within)

    async def dead_letters(self) -> list[DeadLetter]:
        return list(await DeadLetterDesk(self._connection, self._publisher).page(EVERYTHING))

    async def queue_is_empty(self, within: float = 60.0) -> None:
        async def empty() -> bool:
            return (await self._connection.js.stream_info(names.RESULTS_STREAM)).state.messages == 0

        await eventually("every result is settled", empty, within=within)


async def recording(connection: NatsConnection, database: Database) -> AsyncIterator[Recorder]:
    async def ensure() -> None:
        await ensure_recorder(connection.js)

    await ensure()
    pull = PullLoop(connection, names.RESULTS_STREAM, names.RECORDER_CONSUMER, ensure=ensure, batch=1000)
    async with pull, Publisher(connection) as publisher:
        recorder = Recorder(database, pull, clock, LetterBox(publisher))
        task = asyncio.create_task(recorder.run())
        yield recorder
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def recorder(connection: NatsConnection, database: Database) -> AsyncIterator[Recorder]:
    async for running in recording(connection, database):
        yield running


@pytest.fixture
def desk(publisher: Publisher, database: Database, connection: NatsConnection) -> Desk:
    return Desk(publisher, database, connection)


async def test_the_certificate_of_a_result_is_kept(desk: Desk, tenant: Tenant, recorder: Recorder) -> None:
    monitor_id, now = await tenant.create(), clock.now_ms()
    facts = CertificateFacts("CN=a.test", "CN=one", ("a.test",), "1", "f" * 64, None, None, 9)
    for slot in (now, now + 10_000):
        verdict = CheckVerdict(ResultStatus.UP, tls=TlsFacts(certificate=facts))
        await desk.send(result(monitor_id, slot, verdict))
    await desk.stored(2)
    assert await desk.statuses() == ["up", "up"]
    assert await desk.certificates() == [(monitor_id, "f" * 64, "CN=one")]


async def test_results_become_rows_and_a_state(desk: Desk, tenant: Tenant, recorder: Recorder) -> None:
    monitor_id = await tenant.create()
    now = clock.now_ms()
    await desk.send(result(monitor_id, now), result(monitor_id, now + 10_000, DOWN))
    await desk.stored(2)
    await desk.queue_is_empty()
    assert await desk.statuses() == ["up", "down"]
    state = await desk.state(monitor_id)
    assert (state.status, state.status_since, state.consecutive_failures) == ("down", to_datetime(now + 10_000), 1)
    assert state.last_result["error"]["kind"] == "connect_refused"


async def test_a_result_that_comes_twice_is_stored_once(desk: Desk, tenant: Tenant, recorder: Recorder) -> None:
    monitor_id = await tenant.create()
    now = clock.now_ms()
    await desk.send(result(monitor_id, now))
    await desk.stored(1)
    await desk.send(result(monitor_id, now, DOWN), result(monitor_id, now, DOWN))
    await desk.queue_is_empty()
    assert await desk.statuses() == ["up"]
    assert (await desk.state(monitor_id)).status == "up"


async def test_a_verdict_replaces_a_missed_record_and_never_the_other_way(
    desk: Desk, tenant: Tenant, recorder: Recorder
) -> None:
    monitor_id = await tenant.create()
    now = clock.now_ms()
    gone = missed(MissedReason.WORKER_GAP, "no worker")
    for verdict, expected in ((gone, "missed"), (DOWN, "down"), (gone, "down")):
        await desk.send(result(monitor_id, now, verdict))
        await desk.stored(1)
        await desk.queue_is_empty()
        assert await desk.statuses() == [expected]


async def test_two_recorders_store_each_result_once(
    desk: Desk, tenant: Tenant, recorder: Recorder, connection: NatsConnection, database: Database
) -> None:
    monitor_ids = [await tenant.create(f"m{index}") for index in range(10)]
    now = clock.now_ms()
    async for _ in recording(connection, database):
        for slot in range(30):
            await desk.send(*(result(each, now + slot * 1000) for each in monitor_ids))
        await desk.stored(300)
        await desk.queue_is_empty()
    assert len(await desk.rows()) == 300
    for each in monitor_ids:
        assert (await desk.state(each)).last_slot_at == to_datetime(now + 29_000)


@pytest.mark.parametrize("payload", [b"", b"\x80\x04pickle", b"{}", b'{"v":2}', b"[" * 5000])
async def test_what_is_no_result_is_settled_and_does_not_stop_the_others(
    desk: Desk, tenant: Tenant, recorder: Recorder, payload: bytes
) -> None:
    monitor_id = await tenant.create()
    await desk.send_raw(payload)
    await desk.send(result(monitor_id, clock.now_ms()))
    await desk.stored(1)
    await desk.queue_is_empty()
    assert recorder.refused == 1
    assert [(letter.task, message_of(letter)) for letter in await desk.dead_letters()] == [("unreadable", payload)]


@pytest.mark.parametrize("fault", ["number of attempts", "time"])
async def test_a_row_that_can_not_be_stored_is_set_aside_alone(
    desk: Desk, tenant: Tenant, recorder: Recorder, fault: str
) -> None:
    monitor_id = await tenant.create()
    now = clock.now_ms()
    batch = [result(monitor_id, now + slot) for slot in range(20)]
    if fault == "time":
        batch[7] = result(monitor_id, 2**62)
    else:
        batch[7] = result(monitor_id, now + 7, CheckVerdict(ResultStatus.UP, attempts=2**70))
    await desk.send_raw(msgspec.json.encode(ResultBatch(tuple(batch))))
    await desk.stored(19)
    await desk.queue_is_empty()
    assert recorder.refused == 1
    letters = await desk.dead_letters()
    assert [letter.task for letter in letters] == ["store_result"]
    assert msgspec.json.decode(message_of(letters[0]), type=ResultBatch).results == (batch[7],)


async def test_results_of_monitors_that_are_gone_are_settled(
    desk: Desk, tenant: Tenant, recorder: Recorder
) -> None:
    monitor_id = await tenant.create()
    await tenant.delete(monitor_id)
    await desk.send(result(monitor_id, clock.now_ms()), result(uuid4(), clock.now_ms()))
    await desk.queue_is_empty()
    assert await desk.rows() == []


async def test_a_day_without_a_partition_gets_one(desk: Desk, tenant: Tenant, recorder: Recorder) -> None:
    monitor_id = await tenant.create()
    day = timedelta(days=1) // timedelta(milliseconds=1)
    await desk.send(*(result(monitor_id, clock.now_ms() + shift * day) for shift in (-40, 0, 40)))
    await desk.stored(3)
    await desk.queue_is_empty()
    assert recorder.refused == 0


@pytest.mark.slow
async def test_results_wait_while_the_database_is_away(
    tmp_path: Path, connection: NatsConnection, publisher: Publisher
) -> None:
    async with PostgresServer(tmp_path) as postgres:
        await asyncio.to_thread(upgrade, postgres.url)
        async with Database(postgres.url, application_name="tests") as database:
            tenant = await make_tenant(database)
            monitor_id = await tenant.create()
            desk = Desk(publisher, database, connection)
            async for recorder in recording(connection, database):
                now = clock.now_ms()
                await desk.send(result(monitor_id, now))
                await desk.stored(1)
                await postgres.kill()
                await desk.send(*(result(monitor_id, now + slot) for slot in range(1, 700)))

                async def noticed(recorder: Recorder = recorder) -> bool:
                    return recorder.failing_since is not None

                await eventually("the outage is noticed", noticed)
                await postgres.start()
                await desk.stored(700)
                await desk.queue_is_empty()
                assert recorder.failing_since is None


async def test_a_queue_that_restarts_loses_no_result(
    desk: Desk, tenant: Tenant, recorder: Recorder, nats: NatsServer, connection: NatsConnection
) -> None:
    monitor_id = await tenant.create()
    now = clock.now_ms()
    await desk.send(*(result(monitor_id, now + slot) for slot in range(100)))
    await nats.kill()
    await nats.start()

    async def connected() -> bool:
        return connection.is_connected

    await eventually("connected again", connected)
    await desk.send(*(result(monitor_id, now + slot) for slot in range(100, 200)))
    await desk.stored(200)
    await desk.queue_is_empty()
    assert len(await desk.rows()) == 200
