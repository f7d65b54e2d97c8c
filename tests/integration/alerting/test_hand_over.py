"""A delivery that the queue holds more than once, because nobody worked for a while."""

from __future__ import annotations

from uuid import UUID

from shared.db.repositories.deliveries import Queued
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.services.alerting import AlertRelay
from shared.services.delivering import TaskDeliveryQueue
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import EVERYTHING
from shared.tasks.queue import TaskQueue
from shared.testing.clock import FakeClock
from tests.integration.alerting.conftest import Scene, alerting, eventually
from tests.integration.channels.sinks import Answer, HttpSink


class TakesAll:
    """A queue that nobody reads."""

    def __init__(self) -> None:
        self.taken: list[UUID] = []

    async def put(self, delivery: Queued) -> None:
        self.taken.append(delivery.id)


async def test_the_longer_nobody_works_the_less_often_it_is_handed_over(scene: Scene) -> None:
    await scene.add_channel(config={"url": "https://ops.example/hook"})
    await scene.open()
    clock, queue = FakeClock(scene.clock.now_ms()), TakesAll()
    relay = AlertRelay(scene.database, queue, clock)
    waits, since = [], clock.now_ms()
    for _ in range(4 * 3600 // 30):
        before = len(queue.taken)
        await relay.look_once()
        if len(queue.taken) > before:
            waits.append((clock.now_ms() - since) // 1000)
            since = clock.now_ms()
        clock.advance(30)
    assert waits[:7] == [0, 60, 120, 240, 480, 900, 900]
    assert set(waits[7:]) == {900}


async def test_what_failed_for_good_is_sent_again_only_when_somebody_says_so(
    scene: Scene, connection: NatsConnection, publisher: Publisher, sink: HttpSink
) -> None:
    sink.answers.append(Answer(404))
    await scene.add_channel(config={"url": sink.url})
    await scene.open()
    desk, queue = DeadLetterDesk(connection, publisher), TaskDeliveryQueue(TaskQueue(publisher, scene.clock))

    async def are_letters(number: int) -> bool:
        return len(await desk.page(EVERYTHING)) == number

    async with alerting(scene, connection):
        await eventually(lambda: are_letters(1))
        (row,) = await scene.deliveries()
        await queue.put(Queued(row.id, row.organisation_id, 7))
        await eventually(lambda: are_letters(2))
        assert len(sink.arrivals) == 1
        for letter in await desk.page(EVERYTHING):
            await desk.replay(EVERYTHING, letter.id)
        await eventually(lambda: are_letters(0))
        await _arrived(sink, 2)
    assert [arrival.answered for arrival in sink.arrivals] == [404, 200]
    assert [row.state for row in await scene.deliveries()] == ["delivered"]


async def _arrived(sink: HttpSink, number: int) -> None:
    async def enough() -> bool:
        return len(sink.arrivals) >= number

    await eventually(enough)
