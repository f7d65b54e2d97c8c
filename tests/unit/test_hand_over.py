"""When the stream of checks gives no answer: who is asked next, and what a worker takes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import pytest
from structlog.testing import capture_logs

from monitoring_scheduler.dispatch import OFFER_PAUSE_SECONDS, SILENCE_SECONDS, Dispatcher
from monitoring_worker.checking import CheckDuty
from monitoring_worker.hand_over import MAX_IN_HAND, HandOver
from shared.contracts.names import RUN_CHECK_TASK
from shared.contracts.wire import CheckOrder, CheckTask, Schedule
from shared.domain.planner import DueSlot
from shared.domain.slots import Cadence
from shared.messaging.errors import (
    ConnectionLostError,
    MessagingError,
    NobodyListensError,
    PublishRejectedError,
    PublishUnknownError,
)
from shared.messaging.publisher import acceptance, refusal
from shared.messaging.task_format import encode_task
from shared.testing.clock import FakeClock
from shared.testing.queue import FakeSender, Published

START = 1_800_000_000_000
RUN = msgspec.Raw(b'{"check":{"kind":"http"},"timeout_seconds":5.0,"retries":0,"retry_delay_seconds":1.0}')
SILENCE = PublishUnknownError("no answer within 2 s")
NOBODY = NobodyListensError("nothing listens on the subject")
LOST = ConnectionLostError("the connection was lost before an answer came")
BUSY = PublishRejectedError(503, 0, "all places for checks are taken")
OCCUPIED = PublishRejectedError(503, 10077, "maximum messages per subject exceeded")
FULL = PublishRejectedError(503, 10077, "maximum bytes exceeded")


class Desk:
    """A dispatcher on a queue and workers that the test answers for."""

    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.stream, self.offers = FakeSender(), FakeSender()
        self.dispatcher = Dispatcher(self.stream, self.offers, self.stream, self.clock, lambda: True)

    async def due(self, *monitors: int) -> list[Published]:
        for number in monitors:
            schedule = Schedule(UUID(int=number), UUID(int=9), 3, 10_000, 0, ("default",), RUN)
            self.dispatcher.add(DueSlot(Cadence(schedule.monitor_id, 10_000, 0), START, ()), schedule)
        return await self.flush()

    async def flush(self) -> list[Published]:
        await self.dispatcher.flush()
        return self.stream.take() + self.offers.take()

    async def refused(self, error: MessagingError, *messages: Published) -> list[Published]:
        for message in messages:
            message.refuse(error)
        await asyncio.sleep(0)
        return await self.flush()

    async def taken(self, *messages: Published) -> None:
        for message in messages:
            message.acknowledge()
        await asyncio.sleep(0)


def ways(messages: list[Published]) -> list[str]:
    return [message.subject.split(".")[0] for message in messages]


@pytest.mark.parametrize("fault", [SILENCE, FULL], ids=["silent", "full"])
async def test_a_slot_that_the_stream_does_not_take_is_offered_to_a_worker_at_once(fault: MessagingError) -> None:
    desk = Desk()
    [first] = await desk.due(1)
    [offer] = await desk.refused(fault, first)
    assert (offer.subject, offer.payload, offer.message_id) == (
        "handover.default", first.payload, first.message_id
    )  # fmt: skip
    await desk.taken(offer)
    assert len(desk.dispatcher) == 0
    assert desk.dispatcher.acknowledged_since(0) == [], "it was never in the stream that might lose it"


async def test_only_when_the_check_before_is_stuck_for_half_an_interval_is_it_gone_round() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    assert await desk.refused(OCCUPIED, first) == []
    desk.clock.advance(4.9)
    [second] = await desk.flush()
    assert await desk.refused(OCCUPIED, second) == []
    desk.clock.advance(0.6)
    [third] = await desk.flush()
    assert ways([third]) == ["checks"]
    assert ways(await desk.refused(OCCUPIED, third)) == ["handover"]


async def test_a_silent_stream_is_asked_with_one_check_at_a_time_until_it_answers() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    await desk.taken(*await desk.refused(SILENCE, first))
    sent = await desk.due(2, 3, 4)
    assert ways(sent) == ["checks", "handover", "handover"]
    assert ways(await desk.due(5)) == ["handover"], "the first question is still open"
    await desk.taken(*await desk.refused(SILENCE, sent[0]))
    [question] = await desk.due(6)
    assert ways([question]) == ["checks"]
    await desk.taken(question)
    assert ways(await desk.due(7, 8)) == ["checks", "checks"]


async def test_silence_is_not_held_against_the_stream_for_ever() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    await desk.taken(*await desk.refused(SILENCE, first))
    desk.clock.advance(SILENCE_SECONDS + 1)
    assert ways(await desk.due(2, 3)) == ["checks", "checks"]


async def test_a_refusal_is_an_answer_too() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    await desk.taken(*await desk.refused(SILENCE, first))
    [question] = await desk.due(2)
    await desk.taken(*await desk.refused(FULL, question))
    assert ways(await desk.due(3, 4)) == ["checks", "checks"]


async def test_an_offer_that_nobody_answers_is_made_again_and_again_because_another_worker_may() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    [offer] = await desk.refused(SILENCE, first)
    for _ in range(5):
        assert await desk.refused(PublishUnknownError("no answer within 0.4 s"), offer) == []
        desk.clock.advance(OFFER_PAUSE_SECONDS)
        [offer] = await desk.flush()
        assert offer.subject == "handover.default"
    await desk.taken(offer)
    assert len(desk.dispatcher) == 0


async def test_an_offer_that_nobody_answers_goes_back_to_a_stream_that_does() -> None:
    """Only there is the slot kept when the region has nobody just now."""
    desk = Desk()
    [first, second] = await desk.due(1, 2)
    [offer, _] = await desk.refused(SILENCE, first, second)
    await desk.taken(*await desk.due(3))
    assert await desk.refused(PublishUnknownError("no answer within 0.4 s"), offer) == []
    desk.clock.advance(0.3)
    assert ways(await desk.flush()) == ["checks"]


async def test_after_a_lost_connection_one_check_asks_the_stream_and_the_others_follow() -> None:
    """Another scheduler has put these slots into it meanwhile; handed over, they would run twice."""
    desk = Desk()
    sent = await desk.due(1, 2, 3)
    for _ in range(3):
        assert await desk.refused(LOST, *sent) == []
        desk.clock.advance(1)
        sent = await desk.flush()
        assert ways(sent) == ["checks"]
    assert await desk.due(4) == [], "the question is still open"
    await desk.taken(*sent)
    desk.clock.advance(OFFER_PAUSE_SECONDS)
    assert ways(await desk.flush()) == ["checks"] * 3
    assert ways(await desk.due(5, 6)) == ["checks", "checks"]


async def test_a_stream_that_is_silent_after_a_lost_connection_is_gone_round_after_one_short_question() -> None:
    desk = Desk()
    assert await desk.refused(LOST, *await desk.due(1, 2, 3)) == []
    desk.clock.advance(1)
    await desk.dispatcher.flush()
    assert desk.stream.take() == [], "an offer has the shorter patience"
    [question] = desk.offers.take()
    assert question.subject.startswith("checks.")
    assert ways(await desk.refused(SILENCE, question)) == ["handover"]
    desk.clock.advance(OFFER_PAUSE_SECONDS)
    assert sorted(ways(await desk.flush())) == ["checks", "handover"]


async def test_an_offer_whose_connection_is_lost_goes_back_to_the_stream() -> None:
    desk = Desk()
    [first] = await desk.due(1)
    [offer] = await desk.refused(SILENCE, first)
    assert await desk.refused(LOST, offer) == []
    desk.clock.advance(0.3)
    assert ways(await desk.flush()) == ["checks"]


@pytest.mark.parametrize("answer", [NOBODY, BUSY], ids=["nobody", "busy"])
async def test_without_a_worker_the_slot_goes_back_to_the_stream_after_a_pause(answer: MessagingError) -> None:
    desk = Desk()
    [first] = await desk.due(1)
    offers = await desk.refused(SILENCE, first)
    assert await desk.refused(answer, *offers) == []
    desk.clock.advance(0.3)
    assert ways(await desk.flush()) == ["checks"]


@dataclass
class Duty:
    """A worker's duty whose checks end when the test says so."""

    running: int = 0
    begun: list[CheckTask] = field(default_factory=list)
    stored: asyncio.Event = field(default_factory=asyncio.Event)

    async def scheduled(self, task: CheckTask) -> None:
        self.begun.append(task)
        await self.stored.wait()


class Bench:
    def __init__(self, *, concurrency: int = 10) -> None:
        self.clock = FakeClock(START)
        self.duty = Duty()
        duty: CheckDuty = self.duty  # type: ignore[assignment]  # a fake of the two things that are used
        self.hand_over = HandOver(duty, self.clock, concurrency=concurrency)

    def order(self, monitor: int, slot_ms: int = START) -> bytes:
        order = CheckOrder(
            monitor_id=UUID(int=monitor),
            revision=1,
            region="default",
            slot_ms=slot_ms,
            interval_ms=10_000,
            run=RUN,
        )
        return encode_task(RUN_CHECK_TASK, order.key.message_id, msgspec.json.encode(order))

    async def offer(self, monitor: int = 1, slot_ms: int = START) -> bytes:
        answer = await self.hand_over.offered(self.order(monitor, slot_ms))
        await asyncio.sleep(0)
        return answer


async def test_a_worker_answers_before_the_check_ends_and_runs_a_slot_once() -> None:
    bench = Bench()
    assert await bench.offer() == acceptance()
    assert await bench.offer() == acceptance(), "a second offer of what is in hand costs nothing"
    assert [task.slot_ms for task in bench.duty.begun] == [START]
    bench.duty.stored.set()
    await bench.hand_over.finish(1)


@pytest.mark.parametrize(
    ("running", "waiting", "age_ms", "reason"),
    [
        (10, 0, 0, "all places for checks are taken"),
        (0, MAX_IN_HAND, 0, "too many results wait for the queue"),
        (0, 0, 10_000, "overtaken by the monitor's next slot"),
    ],
    ids=["no-place", "no-memory", "too-old"],
)
async def test_a_worker_refuses_what_it_can_not_do(running: int, waiting: int, age_ms: int, reason: str) -> None:
    bench = Bench()
    for number in range(waiting):
        await bench.offer(number)
    bench.duty.running = running
    begun = len(bench.duty.begun)
    assert await bench.offer(99_999, START - age_ms) == refusal(reason)
    assert len(bench.duty.begun) == begun
    bench.duty.stored.set()
    await bench.hand_over.finish(5)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", encode_task("run_check", "x", b'{"v":1}')])
async def test_what_is_no_check_is_not_taken(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await Bench().hand_over.offered(payload)


async def test_a_worker_that_stops_waits_for_results_only_so_long() -> None:
    bench = Bench()
    before = asyncio.all_tasks()
    await bench.offer()
    await bench.hand_over.finish(0.01)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
    assert await bench.offer(2) == refusal("this worker stops")


async def test_a_worker_that_is_ended_in_the_middle_says_what_is_lost() -> None:
    bench = Bench()
    await bench.offer()
    finishing = asyncio.create_task(bench.hand_over.finish(60))
    await asyncio.sleep(0)
    with capture_logs() as told:
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)
    assert [(line["log_level"], line["slots"]) for line in told] == [("error", 1)]
    await asyncio.sleep(0)


async def test_many_offers_at_once_take_no_more_places_than_there_are() -> None:
    bench = Bench(concurrency=3)
    offers = [bench.hand_over.offered(bench.order(number)) for number in range(10)]
    answers = await asyncio.gather(*offers)
    assert answers == [acceptance()] * 3 + [refusal("all places for checks are taken")] * 7
    await asyncio.sleep(0)
    bench.duty.running = 0
    assert await bench.offer(11) == acceptance(), "places are given back"
    bench.duty.stored.set()
    await bench.hand_over.finish(1)
