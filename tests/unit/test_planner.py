"""For any schedules, watermarks and clock jumps: each slot is taken once or passed over once, never early."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shared.domain.planner import SlotQueue, due_slot, plan
from shared.domain.slots import Cadence, slots_between

START = 1_800_000_000_000
ids = st.integers(1, 12).map(lambda number: UUID(int=number))
intervals = st.sampled_from([5_000, 7_000, 10_000, 60_000])
cadences = st.builds(Cadence, ids, intervals, st.integers(START - 100_000, START + 100_000))


def unique(found: list[Cadence]) -> dict[UUID, Cadence]:
    return {cadence.monitor_id: cadence for cadence in found}


@given(st.lists(cadences), st.integers(-200_000, 200_000), st.integers(-200_000, 200_000))
def test_plan_accounts_for_every_slot_between_watermark_and_now(
    found: list[Cadence], watermark: int, now: int
) -> None:
    schedules = unique(found)
    for due in plan(schedules.values(), START + watermark, START + now):
        assert due.slot_ms <= START + now
        accounted = [*due.superseded_ms, due.slot_ms]
        assert accounted == list(slots_between(due.cadence, START + watermark, START + now))
        del schedules[due.cadence.monitor_id]
    for cadence in schedules.values():
        assert not list(slots_between(cadence, START + watermark, START + now))


def test_only_the_newest_of_several_overdue_slots_is_run() -> None:
    cadence = Cadence(UUID(int=1), 10_000, START)
    due = due_slot(cadence, START - 1, START + 35_000)
    assert due is not None
    assert due.superseded_ms[0] == START
    assert due.slot_ms - due.superseded_ms[-1] == 10_000


@given(st.lists(cadences), st.lists(st.integers(-30_000, 60_000), max_size=20))
def test_the_queue_says_step_by_step_what_the_plan_says(found: list[Cadence], jumps: list[int]) -> None:
    schedules = unique(found)
    queue = SlotQueue()
    for cadence in schedules.values():
        queue.put(cadence, START)
    watermark = now = START
    for jump in jumps:
        now += jump
        assert queue.take_due(now) == plan(schedules.values(), watermark, now)
        watermark = max(watermark, now)


class QueueUnderChange(RuleBasedStateMachine):
    """Monitors come, change, go and come back while the clock jumps; the books must balance."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = SlotQueue()
        self.cadences: dict[UUID, Cadence] = {}
        self.now = START
        self.high = START
        self.run: Counter[tuple[UUID, int]] = Counter()

    @initialize(found=st.lists(cadences))
    def start(self, found: list[Cadence]) -> None:
        self.cadences = unique(found)
        for cadence in self.cadences.values():
            self.queue.put(cadence, START)

    @rule(monitor_id=ids, interval=intervals)
    def put(self, monitor_id: UUID, interval: int) -> None:
        cadence = Cadence(monitor_id, interval, self.high)
        self.cadences[monitor_id] = cadence
        self.queue.put(cadence, self.high - 1)

    @rule(monitor_id=ids)
    def remove(self, monitor_id: UUID) -> None:
        self.cadences.pop(monitor_id, None)
        self.queue.remove(monitor_id)

    @rule(monitor_id=ids)
    def rebuild(self, monitor_id: UUID) -> None:
        if cadence := self.cadences.get(monitor_id):
            self.queue.remove(monitor_id)
            self.queue.put(cadence, self.high - 1)

    @rule(jump=st.integers(-20_000, 120_000))
    def tick(self, jump: int) -> None:
        self.now += jump
        self.high = max(self.high, self.now)
        for due in self.queue.take_due(self.now):
            assert due.cadence == self.cadences[due.cadence.monitor_id]
            for slot in (*due.superseded_ms, due.slot_ms):
                assert slot <= self.now, "a slot was taken early"
                self.run[due.cadence.monitor_id, slot] += 1

    @invariant()
    def no_slot_twice(self) -> None:
        assert not [key for key, times in self.run.items() if times > 1]

    @invariant()
    def none_is_left_behind(self) -> None:
        for due in self.queue.take_due(self.now):
            for slot in (*due.superseded_ms, due.slot_ms):
                self.run[due.cadence.monitor_id, slot] += 1
        done = self.queue.done_until()
        for cadence in self.cadences.values():
            assert not list(slots_between(cadence, done[cadence.monitor_id], self.now))

    def teardown(self) -> None:
        # The heap must not grow with changes that are over: each monitor ends with the entries still ahead.
        self.queue.take_due(self.high + 200_000)
        assert len(self.queue) == len(self.cadences)


TestQueueUnderChange = QueueUnderChange.TestCase


def test_marks_of_removed_monitors_are_let_go_in_time() -> None:
    queue = SlotQueue()
    queue.put(Cadence(UUID(int=1), 5_000, START), START - 1)
    queue.take_due(START)
    queue.remove(UUID(int=1))
    queue.forget(before_ms=START)
    assert UUID(int=1) in queue.done_until()
    queue.forget(before_ms=START + 1)
    assert UUID(int=1) not in queue.done_until()
