"""Who dispatches what: the leader all, a standby nothing until the leader's report is overdue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

import msgspec
import pytest
from taskiq import InMemoryBroker, ScheduledTask, ScheduleSource
from taskiq.exceptions import ScheduledTaskCancelledError

from monitoring_scheduler.dispatch import Dispatcher
from monitoring_scheduler.progress import read_progress
from monitoring_scheduler.scheduler import K8sScheduler
from shared.contracts.wire import Progress, Schedule
from shared.domain.slots import Cadence, slots_between
from shared.messaging.schedule_source import LOOKBACK_MS, OVERDUE_MS, HAScheduleSource
from shared.testing.clock import FakeClock
from shared.testing.queue import FakeSender

MONITOR = UUID(int=1)
START = 1_800_000_000_000
INTERVAL = 10_000
TOO_DEEP = b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}"


class NoSchedules(ScheduleSource):
    async def get_schedules(self) -> list[ScheduledTask]:
        return []


@dataclass
class FakeLease:
    holds: bool = False
    owner: str = "node"


class Node:
    """One scheduler with a clock, a lease and a queue of its own."""

    def __init__(self, *, leads: bool) -> None:
        self.clock = FakeClock(START)
        self.lease = FakeLease(leads)
        self.source = HAScheduleSource(NoSchedules(), self.lease, self.clock)
        self.sender = FakeSender()
        self.dispatcher = Dispatcher(
            self.sender, self.sender, self.sender, self.clock, lambda: self.source.may_send
        )
        self.scheduler = K8sScheduler("node", InMemoryBroker(), self.source, self.dispatcher, self.clock)

    def schedule(self, starts_at_ms: int) -> None:
        value = Schedule(MONITOR, UUID(int=9), 1, INTERVAL, starts_at_ms, ("default",), msgspec.Raw(b"{}"))
        self.source.schedule_changed(str(MONITOR), msgspec.json.encode(value))

    def leader_reports(self, done_until_ms: int, planned_until_ms: int | None = None) -> None:
        planned = done_until_ms if planned_until_ms is None else planned_until_ms
        self.source.progress_reported(Progress(done_until_ms, planned, "other"))

    def reports(self) -> None:
        """It hears its own report, if there is one."""
        if progress := self.scheduler.report():
            self.source.progress_reported(progress)

    async def pass_(self) -> list[int]:
        """One pass; answers the slots that were sent as checks."""
        self.scheduler._last_pass = self.clock.monotonic()
        return await self.late_pass()

    async def late_pass(self) -> list[int]:
        """One pass after whatever time went by since the last one."""
        self.scheduler.step()
        await self.dispatcher.flush()
        sent = self.sender.take()
        for message in sent:
            message.acknowledge()
        await asyncio.sleep(0)
        return [int(m.message_id.split(":")[1]) for m in sent if m.subject.startswith("checks.")]


def slots(after_ms: int, until_ms: int) -> list[int]:
    return list(slots_between(Cadence(MONITOR, INTERVAL, START - 1_000_000), after_ms, until_ms))


async def test_the_leader_sends_each_slot_once_when_it_is_due() -> None:
    node = Node(leads=True)
    node.schedule(START)
    sent = await node.pass_()
    assert sent == [START], "a new monitor is checked at once"
    for _ in range(300):
        node.clock.advance(0.1)
        sent += await node.pass_()
    assert sent == [START, *slots(START, START + 30_000)]


async def test_a_standby_sends_nothing_while_the_leader_reports() -> None:
    node = Node(leads=False)
    node.schedule(START)
    for _ in range(300):
        node.clock.advance(0.1)
        node.leader_reports(node.clock.now_ms() - 300)
        assert await node.pass_() == []


async def test_a_standby_sends_what_the_leader_left_when_its_report_is_overdue() -> None:
    node = Node(leads=False)
    node.schedule(START)
    node.leader_reports(START)
    await node.pass_()
    node.clock.advance(OVERDUE_MS / 1000)
    assert await node.pass_() == [], "not overdue yet"
    node.clock.advance(INTERVAL / 1000)
    assert await node.pass_() == slots(START, START + OVERDUE_MS + INTERVAL)


async def test_who_reported_last_goes_on_while_nobody_holds_the_lease() -> None:
    node = Node(leads=True)
    node.schedule(START)
    sent = await node.pass_()
    node.reports()
    node.lease.holds = False
    node.source.lease_changed(leads=False, _reason="lease ran out")
    for number in range(300):
        node.clock.advance(0.1)
        node.reports()
        sent += await node.pass_()
        assert node.source.may_send is (number >= 9), "its own reports are no other scheduler's"
    assert sent == [START, *slots(START, START + 30_000)]


async def test_who_lost_the_lease_listens_for_a_second_and_leaves_the_work_to_whom_it_hears() -> None:
    node = Node(leads=True)
    node.schedule(START)
    await node.pass_()
    node.reports()
    node.lease.holds = False
    node.source.lease_changed(leads=False, _reason="lease taken over")
    assert not node.source.may_send
    node.clock.advance(0.4)
    node.leader_reports(node.clock.now_ms())
    for _ in range(30):
        node.clock.advance(0.4)
        node.leader_reports(node.clock.now_ms() - 100)
        assert await node.pass_() == []


async def test_who_is_cut_off_sends_nothing_until_it_has_listened_for_a_second() -> None:
    node = Node(leads=True)
    node.schedule(START)
    await node.pass_()
    node.reports()
    node.source.cut_off()
    node.lease.holds = False
    node.source.lease_changed(leads=False, _reason="lease ran out")
    for _ in range(5):
        node.clock.advance(4)
        assert await node.late_pass() == []
    node.source.rejoined()
    assert not node.source.may_send
    node.clock.advance(1.1)
    node.scheduler._last_pass = node.clock.monotonic()
    assert node.source.may_send, "nobody else was heard"


async def test_an_echo_of_an_older_report_changes_nothing() -> None:
    node = Node(leads=False)
    node.schedule(START)
    node.clock.advance(5.5)
    node.leader_reports(START + 5_000)
    node.source.progress_reported(Progress(START, START, "node"))
    assert not node.source.may_send
    assert node.source.done_until_ms == START + 5_000


async def test_a_new_leader_goes_on_from_the_report_and_repeats_what_was_not_acknowledged() -> None:
    node = Node(leads=False)
    node.schedule(START)
    first = slots(START, START + 2 * INTERVAL)[0]
    node.clock.advance(2 * INTERVAL / 1000)
    node.leader_reports(done_until_ms=first - 1, planned_until_ms=node.clock.now_ms())
    await node.pass_()
    node.lease.holds = True
    assert await node.pass_() == slots(first - 1, START + 2 * INTERVAL)[-1:]


async def test_a_restarted_scheduler_resumes_where_the_report_stands() -> None:
    node = Node(leads=True)
    node.leader_reports(START - 1)
    node.schedule(START - 1_000_000)
    node.source.schedules_loaded()
    node.clock.advance(INTERVAL / 1000)
    assert await node.pass_() == slots(START - 1, START + INTERVAL)


async def test_a_schedule_that_was_lost_and_restored_loses_no_slot() -> None:
    node = Node(leads=True)
    node.schedule(START)
    node.source.schedules_loaded()
    await node.pass_()
    node.source.schedule_changed(str(MONITOR), None)
    node.clock.advance(INTERVAL / 1000)
    await node.pass_()
    node.schedule(START)
    assert await node.pass_() == slots(START, START + INTERVAL)


async def test_a_monitor_whose_schedule_arrives_late_gets_its_first_slot() -> None:
    node = Node(leads=True)
    node.source.schedules_loaded()
    node.leader_reports(START)
    node.clock.advance(2.0)
    node.schedule(START + 500)
    assert await node.pass_() == [START + 500]


async def test_a_very_old_schedule_reaches_back_no_further_than_the_message_ids() -> None:
    node = Node(leads=True)
    node.source.schedules_loaded()
    node.schedule(START - 100_000_000)
    [newest] = await node.pass_()
    assert START - LOOKBACK_MS < newest <= START


@pytest.mark.parametrize("value", [b"\x80\x04pickle", TOO_DEEP], ids=["pickle", "too-deep"])
async def test_an_unreadable_schedule_leaves_the_others_alone(value: bytes) -> None:
    node = Node(leads=True)
    node.schedule(START)
    node.source.schedule_changed(str(UUID(int=2)), value)
    node.source.schedule_changed(str(MONITOR), b"{}")
    assert await node.pass_() == [START]


@pytest.mark.parametrize("value", [None, b"", b"{}", TOO_DEEP], ids=["none", "deleted", "other", "too-deep"])
def test_what_is_no_report_is_none(value: bytes | None) -> None:
    assert read_progress(value) is None


async def test_a_report_from_the_future_is_not_believed() -> None:
    node = Node(leads=False)
    node.schedule(START)
    node.leader_reports(START)
    node.leader_reports(START + 3_600_000)
    node.clock.advance(INTERVAL / 1000)
    assert await node.pass_() == slots(START, START + INTERVAL)


async def test_the_report_stops_before_the_oldest_open_slot() -> None:
    node = Node(leads=True)
    node.schedule(START)
    node.scheduler.step()
    assert node.scheduler.report() == Progress(START - 1, START, "node")
    await node.pass_()
    assert node.scheduler.report() == Progress(START, START, "node")


async def test_who_begins_to_send_reports_nothing_before_it_has_planned() -> None:
    """What it planned when it last led, or nothing at all, would take the place of a true report."""
    assert Node(leads=True).scheduler.report() is None
    node = Node(leads=False)
    node.schedule(START)
    for _ in range(2):
        await node.pass_()
        node.lease.holds = True
        assert node.scheduler.report() is None
        await node.pass_()
        assert node.scheduler.report() == Progress(node.clock.now_ms(), node.clock.now_ms(), "node")
        node.clock.advance(3_600)
        node.lease.holds = False
        assert node.scheduler.report() is None, "it was frozen and may have a successor"


async def test_a_scheduler_that_wakes_from_a_freeze_waits_for_the_reports_it_missed() -> None:
    node = Node(leads=True)
    node.schedule(START)
    node.leader_reports(START)
    await node.pass_()
    node.clock.advance(2 * INTERVAL / 1000)
    node.lease.holds = False
    assert await node.late_pass() == [], "the lease is gone, and silence proves nothing after a freeze"
    node.leader_reports(node.clock.now_ms())
    assert await node.pass_() == []


async def test_a_scheduler_that_was_cut_off_waits_for_the_reports_it_missed() -> None:
    node = Node(leads=False)
    node.schedule(START)
    node.leader_reports(START)
    node.clock.advance(INTERVAL / 1000)
    node.source.distrust_reports()
    assert await node.pass_() == []
    node.clock.advance(OVERDUE_MS / 1000)
    assert await node.pass_() == slots(START, START + INTERVAL + OVERDUE_MS)


async def test_a_task_that_goes_through_taskiq_is_cancelled_on_a_standby() -> None:
    task = ScheduledTask(task_name="job", labels={}, args=[], kwargs={}, interval=5)
    await Node(leads=True).source.pre_send(task)
    with pytest.raises(ScheduledTaskCancelledError):
        await Node(leads=False).source.pre_send(task)


async def test_a_beat_that_stands_still_says_so() -> None:
    node = Node(leads=True)
    await node.pass_()
    assert node.scheduler.problem() is None
    node.clock.advance(11)
    assert node.scheduler.problem() == "no planning pass for 11 s"
