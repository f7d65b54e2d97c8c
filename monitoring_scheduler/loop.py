"""The beat: what is due goes to the queue on time, from whichever scheduler may send.

All schedulers hold the same schedules and the same queue of slots. The leader dispatches and reports how far it
has come (the watermark). A standby strikes out what the leader reports; when the report is overdue by a second it
dispatches itself, lease or no lease: message ids make a slot that both send run once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

import msgspec
import structlog

from monitoring_scheduler.dispatch import Dispatcher
from shared.contracts.wire import Progress, Schedule
from shared.domain.clock import Clock
from shared.domain.planner import SlotQueue
from shared.domain.slots import Cadence
from shared.observability import metrics

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.03
IDLE_SECONDS = 0.25
OVERDUE_MS = 1_000
LOOKBACK_MS = 60_000
MAX_BACKLOG_MS = 600_000
FORGET_AFTER_MS = 3_600_000
FORGET_EVERY_MS = 60_000
CLOCK_TOLERANCE_MS = 2_000
STALL_SECONDS = 0.75


class Lease(Protocol):
    @property
    def holds(self) -> bool: ...


class SchedulerLoop:
    """Plans, dispatches and reports, until cancelled."""

    def __init__(self, name: str, lease: Lease, clock: Clock) -> None:
        self.name = name
        self._lease, self._clock = lease, clock
        self._queue = SlotQueue()
        self._schedules: dict[UUID, Schedule] = {}
        self._planned_until_ms = 0
        self._forgot_ms = 0
        self._reported: Progress | None = None
        self.warm = False  # True once the schedules found at start are in the queue
        self._reports_trusted_from = clock.monotonic()
        self.last_pass = clock.monotonic()

    @property
    def dispatching(self) -> bool:
        """Whether this scheduler may send right now: it leads, or the leader's report is overdue."""
        return self._lease.holds or self._leader_is_overdue()

    def schedule_changed(self, key: str, value: bytes | None) -> None:
        """A change in the bucket of schedules. A value that can't be read affects its own monitor only."""
        try:
            monitor_id = UUID(key)
            schedule = msgspec.json.decode(value, type=Schedule) if value is not None else None
        except ValueError as error:
            log.error("a schedule can't be read and is left as it was", key=key, error=str(error))
            return
        if schedule is None:
            self._schedules.pop(monitor_id, None)
            self._queue.remove(monitor_id)
        else:
            self._schedules[monitor_id] = schedule
            self._queue.put(_cadence(schedule), self._floor_ms(schedule))
        metrics.scheduler_schedules.set(len(self._schedules))

    def progress_reported(self, progress: Progress) -> None:
        """The leader's report, also one left by an earlier run. One from the future is a clock gone wrong."""
        if progress.planned_until_ms > self._clock.now_ms() + CLOCK_TOLERANCE_MS:
            log.error("a scheduler reports slots of the future; compare the clocks", scheduler=progress.scheduler)
            return
        self._reported = progress

    def distrust_reports(self) -> None:
        """Don't take silence for a dead leader just now: we were cut off or frozen, and reports are on their way.

        Without this, a leader that wakes from a long freeze would send what its successor has sent meanwhile.
        """
        self._reports_trusted_from = self._clock.monotonic() + OVERDUE_MS / 1000

    def report(self, dispatcher: Dispatcher) -> Progress:
        """What a leader reports: everything older than its oldest open slot is done."""
        now = self._planned_until_ms
        oldest = dispatcher.oldest_slot_ms()
        done = now if oldest is None else max(oldest - 1, now - LOOKBACK_MS)
        return Progress(min(done, now), now, self.name)

    async def run(self, dispatcher: Dispatcher) -> None:
        self.last_pass = self._clock.monotonic()
        while True:
            self.step(dispatcher)
            self.last_pass = self._clock.monotonic()
            await dispatcher.flush()
            await asyncio.sleep(self._pause(dispatcher))

    def step(self, dispatcher: Dispatcher) -> None:
        """One pass: take what is due and enter it into the book, or leave it to the leader."""
        now = self._clock.now_ms()
        if self._clock.monotonic() - self.last_pass > STALL_SECONDS:
            self.distrust_reports()
        if self.dispatching:
            for due in self._queue.take_due(now):
                dispatcher.add(due, self._schedules[due.cadence.monitor_id])
            self._planned_until_ms = now
            self._forget_removed(now)
        elif self._reported:
            self._queue.take_due(self._reported.done_until_ms)
            dispatcher.settle_until(self._reported.done_until_ms)

    def _forget_removed(self, now_ms: int) -> None:
        """Walks over all monitors, so not in every pass."""
        if now_ms - self._forgot_ms > FORGET_EVERY_MS:
            self._forgot_ms = now_ms
            self._queue.forget(now_ms - FORGET_AFTER_MS)

    def _leader_is_overdue(self) -> bool:
        if self._reported is None or self._clock.monotonic() < self._reports_trusted_from:
            return False
        return self._clock.now_ms() - self._reported.planned_until_ms > OVERDUE_MS

    def _floor_ms(self, schedule: Schedule) -> int:
        """Up to where the slots of a schedule that just appeared count as done.

        A scheduler that starts resumes where the last report stands. Later, what appears is a new monitor, whose
        first slot lies a moment in the past, or one that was lost and restored: as far back as message ids reach.
        """
        now = self._clock.now_ms()
        resume = now - LOOKBACK_MS
        if self._reported and not self.warm:
            resume = min(self._reported.done_until_ms, now)
        return max(schedule.starts_at_ms - 1, resume, now - MAX_BACKLOG_MS)

    def _pause(self, dispatcher: Dispatcher) -> float:
        """Until something is due: at least a tick, so that slots due together share a wake-up."""
        waits = [IDLE_SECONDS]
        if (due := self._queue.next_due_ms()) is not None and self.dispatching:
            waits.append((due - self._clock.now_ms()) / 1000)
        if (retry := dispatcher.next_retry()) is not None:
            waits.append(retry - self._clock.monotonic())
        return max(TICK_SECONDS, min(waits))


def _cadence(schedule: Schedule) -> Cadence:
    return Cadence(schedule.monitor_id, schedule.interval_ms, schedule.starts_at_ms)
