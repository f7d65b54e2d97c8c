"""The book of slots: each ends once, acknowledged or recorded as missed, whatever the queue answers."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from monitoring_scheduler.dispatch import SILENCE_SECONDS, Dispatcher
from shared.contracts.wire import CheckTask, ResultBatch, Schedule
from shared.domain.errors import ErrorKind
from shared.domain.planner import DueSlot
from shared.domain.result import ResultStatus
from shared.domain.slots import Cadence
from shared.messaging.errors import NobodyListensError, PublishRejectedError, PublishUnknownError
from shared.testing.clock import FakeClock
from shared.testing.queue import FakeSender, Published

MONITOR, OTHER = UUID(int=1), UUID(int=2)
RUN = msgspec.Raw(b'{"check":{"kind":"http"},"timeout_seconds":5.0,"retries":0,"retry_delay_seconds":1.0}')
NO_WORKER = NobodyListensError("nothing listens on the subject")
OCCUPIED = PublishRejectedError(503, 10077, "maximum messages per subject exceeded")


def schedule(*regions: str, monitor: UUID = MONITOR) -> Schedule:
    return Schedule(monitor, UUID(int=9), 3, 10_000, 0, regions or ("default",), RUN)


def due(slot_ms: int, *superseded: int) -> DueSlot:
    return DueSlot(Cadence(MONITOR, 10_000, 0), slot_ms, superseded)


class Desk:
    """A dispatcher on a queue that the test answers for."""

    def __init__(self) -> None:
        self.clock = FakeClock(10_000)
        self.sender = FakeSender()
        self.may_send = True
        self.dispatcher = Dispatcher(self.sender, self.sender, self.sender, self.clock, lambda: self.may_send)

    async def flush(self) -> list[Published]:
        await self.dispatcher.flush()
        return self.sender.take()

    async def answered(self) -> None:
        await asyncio.sleep(0)  # done callbacks of futures run in the next turn of the loop

    async def no_worker_takes_it(self) -> None:
        """What the stream did not take is offered to the workers, and refused there as well."""
        [offer] = await self.flush()
        assert offer.subject == "handover.default"
        offer.refuse(NO_WORKER)
        await self.answered()


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_slot_goes_out_once_for_each_region_and_leaves_the_book_when_acknowledged(desk: Desk) -> None:
    desk.dispatcher.add(due(10_000), schedule("eu", "us"))
    sent = await desk.flush()
    assert [message.subject for message in sent] == [f"checks.eu.{MONITOR}", f"checks.us.{MONITOR}"]
    assert [message.message_id for message in sent] == [f"{MONITOR}:10000:eu", f"{MONITOR}:10000:us"]
    assert desk.dispatcher.oldest_slot_ms() == 10_000
    for message in sent:
        message.acknowledge()
    await desk.answered()
    assert len(desk.dispatcher) == 0
    assert await desk.flush() == []


async def test_the_task_carries_the_slot_and_what_to_run(desk: Desk) -> None:
    desk.dispatcher.add(due(10_000), schedule())
    [message] = await desk.flush()
    task = msgspec.convert(msgspec.json.decode(message.payload)["args"][0], CheckTask)
    assert (task.key.message_id, task.revision, task.interval_ms) == (message.message_id, 3, 10_000)
    assert task.run.check == {"kind": "http"}
    message.acknowledge()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (OCCUPIED, ErrorKind.WORKER_GAP),
        (PublishRejectedError(503, 10077, "maximum bytes exceeded"), ErrorKind.OVERLOADED),
        (PublishRejectedError(503, 10023, "insufficient resources"), ErrorKind.OVERLOADED),
        (PublishRejectedError(400, 0, "maximum payload exceeded"), ErrorKind.SCHEDULER_GAP),
        (PublishUnknownError("no acknowledgement in time"), ErrorKind.SCHEDULER_GAP),
    ],
)
async def test_a_refused_slot_is_tried_again_and_recorded_when_the_next_one_comes(
    desk: Desk, refusal: PublishRejectedError | PublishUnknownError, reason: ErrorKind
) -> None:
    desk.dispatcher.add(due(10_000), schedule())
    [first] = await desk.flush()
    first.refuse(refusal)
    await desk.answered()
    if reason is not ErrorKind.WORKER_GAP:
        await desk.no_worker_takes_it()
    assert await desk.flush() == [], "a refused slot waits a moment"
    desk.clock.advance(0.3)
    [again] = await desk.flush()
    assert again.message_id == first.message_id
    again.refuse(refusal)
    await desk.answered()

    desk.dispatcher.add(due(20_000), schedule())
    newer, record = await desk.flush()
    [missed] = msgspec.json.decode(record.payload, type=ResultBatch).results
    verdict = missed.verdict
    assert record.message_id == f"missed:{first.message_id}"
    assert (verdict.status, verdict.error and verdict.error.kind) == (ResultStatus.MISSED, reason)
    assert newer.message_id == f"{MONITOR}:20000:default"
    record.acknowledge()
    newer.acknowledge()
    await desk.answered()
    assert len(desk.dispatcher) == 0


async def test_an_acknowledgement_that_comes_after_the_next_slot_still_counts(desk: Desk) -> None:
    desk.dispatcher.add(due(10_000), schedule())
    [first] = await desk.flush()
    desk.dispatcher.add(due(20_000), schedule())
    [second] = await desk.flush()
    first.acknowledge()
    second.acknowledge()
    await desk.answered()
    assert len(desk.dispatcher) == 0, "nothing was missed"


async def test_a_slot_that_the_queue_lost_is_sent_again_under_its_own_id(desk: Desk) -> None:
    sent = []
    for slot in (10_000, 20_000):
        desk.dispatcher.add(due(slot), schedule())
        sent += await desk.flush()
        sent[-1].acknowledge()
        await desk.answered()
        desk.clock.advance(10)
    assert [key.slot_ms for key in desk.dispatcher.acknowledged_since(desk.clock.monotonic() - 15)] == [20_000]
    [_, lost] = desk.dispatcher.acknowledged_since(0)
    desk.dispatcher.repeat(lost, schedule())
    [again] = await desk.flush()
    assert again.message_id == sent[-1].message_id
    desk.dispatcher.add(due(30_000), schedule())
    desk.dispatcher.repeat(lost, schedule())
    [newer] = await desk.flush()
    assert newer.message_id == f"{MONITOR}:30000:default"
    again.acknowledge()
    newer.acknowledge()


async def test_a_slot_that_fails_after_the_next_one_came_is_recorded(desk: Desk) -> None:
    desk.dispatcher.add(due(10_000), schedule())
    [first] = await desk.flush()
    desk.dispatcher.add(due(20_000), schedule())
    [second] = await desk.flush()
    second.acknowledge()
    first.refuse(PublishUnknownError("no acknowledgement in time"))
    await desk.answered()
    [record] = await desk.flush()
    assert record.message_id == f"missed:{first.message_id}"
    record.acknowledge()


async def test_superseded_slots_are_recorded_and_retried_until_they_are(desk: Desk) -> None:
    desk.dispatcher.add(due(30_000, 10_000, 20_000), schedule())
    sent = await desk.flush()
    assert [message.message_id.partition(":")[0] for message in sent] == [str(MONITOR), "missed", "missed"]
    for message in sent:
        message.refuse(PublishUnknownError("no acknowledgement in time"))
    await desk.answered()
    desk.clock.advance(0.3)
    again = await desk.flush()
    assert sorted(message.message_id for message in again) == sorted(message.message_id for message in sent)
    for message in again:
        message.acknowledge()


async def test_the_permission_is_asked_before_every_send(desk: Desk) -> None:
    desk.dispatcher.add(due(10_000), schedule("a", "b", "c"))
    desk.may_send = False
    assert await desk.flush() == []
    assert desk.dispatcher.oldest_slot_ms() == 10_000, "an unsent slot holds the watermark back"
    desk.may_send = True
    assert len(await desk.flush()) == 3


@pytest.mark.parametrize("full", ["offers", "records", "checks"])
async def test_what_finds_no_room_waits_without_holding_up_the_rest(full: str) -> None:
    """Workers of one region that don't answer must not make the checks of the others late."""
    clock, ways = FakeClock(10_000), {name: FakeSender() for name in ("checks", "offers", "records")}
    dispatcher = Dispatcher(ways["checks"], ways["offers"], ways["records"], clock, lambda: True)
    dispatcher.add(due(10_000), schedule("sick"))
    await dispatcher.flush()
    [check] = ways["checks"].take()
    check.refuse(PublishUnknownError("no acknowledgement in time"))
    await asyncio.sleep(0)  # from here on it is to be offered
    clock.advance(SILENCE_SECONDS + 1)
    ways[full].has_room = False
    dispatcher.add(DueSlot(Cadence(OTHER, 10_000, 0), 20_000, (10_000,)), schedule("eu", monitor=OTHER))
    for _ in range(2):
        await dispatcher.flush()
    sent = {name: len(way.published) for name, way in ways.items()}
    assert sent == {"checks": 1, "offers": 1, "records": 1, full: 0}
    ways[full].has_room = True
    await dispatcher.flush()
    assert {name: len(way.published) for name, way in ways.items()} == {"checks": 1, "offers": 1, "records": 1}
    assert dispatcher.next_retry() is None, "nothing is sent twice"


async def test_what_another_scheduler_has_done_is_struck_out(desk: Desk) -> None:
    desk.may_send = False
    desk.dispatcher.add(due(10_000), schedule())
    desk.dispatcher.settle_until(9_999)
    assert len(desk.dispatcher) == 1
    desk.dispatcher.settle_until(10_000)
    desk.may_send = True
    assert await desk.flush() == []
