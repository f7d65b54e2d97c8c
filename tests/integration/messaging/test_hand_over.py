"""Without a stream a slot still reaches a worker, over a real server."""

from __future__ import annotations

from uuid import UUID

import msgspec

from monitoring_scheduler.dispatch import Dispatcher
from monitoring_worker.checking import CheckDuty
from monitoring_worker.hand_over import HandOver
from shared.contracts.names import CHECKS_STREAM, hand_over_subject
from shared.contracts.sealing import Sealer
from shared.contracts.wire import ResultMessage, Schedule
from shared.domain.clock import SystemClock
from shared.domain.planner import DueSlot
from shared.domain.result import ResultStatus
from shared.domain.slots import Cadence
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.requests import RequestServer
from shared.testing.engine import FakeEngine
from tests.integration.messaging.conftest import until

KEY = "k" * 32
RUN = msgspec.Raw(
    b'{"check":{"kind":"http","url":"http://127.0.0.1/"},"timeout_seconds":5.0,"retries":0,"retry_delay_seconds":1.0}'
)


async def test_a_check_is_run_once_although_its_stream_is_gone(
    connection: NatsConnection, publisher: Publisher
) -> None:
    clock = SystemClock()
    results: list[ResultMessage] = []

    async def keep(message: ResultMessage) -> None:
        results.append(message)

    engine = FakeEngine()
    duty = CheckDuty(engine, Sealer([KEY]), keep, clock, region="eu")
    workers = [HandOver(duty, clock, concurrency=1) for _ in range(2)]
    servers = [RequestServer(connection, hand_over_subject("eu"), worker.offered) for worker in workers]
    for server in servers:
        await server.start()
    await connection.js.delete_stream(CHECKS_STREAM)

    dispatcher = Dispatcher(publisher, publisher, publisher, clock, lambda: True)
    schedule = Schedule(UUID(int=1), UUID(int=9), 1, 10_000, 0, ("eu",), RUN)
    slot_ms = clock.now_ms()
    dispatcher.add(DueSlot(Cadence(schedule.monitor_id, 10_000, 0), slot_ms, ()), schedule)
    while len(dispatcher):
        await dispatcher.flush()
        await until(lambda: publisher.in_flight == 0, what="an answer")
    await until(lambda: bool(results), what="a result")
    [(check, *asked)] = engine.asked
    assert (check.kind, *asked) == ("http", 5, 0, 1, 10)
    assert [(result.slot_ms, result.verdict.status) for result in results] == [(slot_ms, ResultStatus.UP)]
    for server in servers:
        await server.stop()


async def test_a_worker_that_is_busy_says_so_and_the_slot_stays_in_the_book(
    connection: NatsConnection, publisher: Publisher
) -> None:
    clock = SystemClock()

    async def nothing(_: ResultMessage) -> None:
        """No result comes."""

    duty = CheckDuty(FakeEngine(), Sealer([KEY]), nothing, clock, region="eu")
    duty.running = 1
    server = RequestServer(connection, hand_over_subject("eu"), HandOver(duty, clock, concurrency=1).offered)
    await server.start()
    await connection.js.delete_stream(CHECKS_STREAM)
    dispatcher = Dispatcher(publisher, publisher, publisher, clock, lambda: True)
    schedule = Schedule(UUID(int=1), UUID(int=9), 1, 10_000, 0, ("eu",), RUN)
    dispatcher.add(DueSlot(Cadence(schedule.monitor_id, 10_000, 0), clock.now_ms(), ()), schedule)
    for _ in range(2):
        await dispatcher.flush()
        await until(lambda: publisher.in_flight == 0, what="an answer")
    assert (publisher.unknown, publisher.rejected) == (1, 1)
    assert len(dispatcher) == 1
    await server.stop()
