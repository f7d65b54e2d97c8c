"""The beat: what is due goes to the queue on time, from whichever scheduler may send."""

from __future__ import annotations

import asyncio

import structlog
from taskiq import AsyncBroker, TaskiqScheduler

from monitoring_scheduler.dispatch import Dispatcher
from shared.contracts.wire import Progress
from shared.domain.clock import Clock
from shared.messaging.schedule_source import LOOKBACK_MS, HAScheduleSource

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.04
IDLE_SECONDS = 0.25
STALL_SECONDS = 0.75
STALLED_AFTER_SECONDS = 10.0


class K8sScheduler(TaskiqScheduler):
    """A scheduler that can be replaced at any moment, as Kubernetes replaces pods.

    taskiq's own keeps "last run" in memory, sends everything at once after a restart, and dies of SIGTERM without
    a word. This one plans slots, keeps each in the dispatcher's book until it is acknowledged, reports how far it
    has come so that a standby can go on, and says whether it works (``problem``) for the readiness file.
    """

    def __init__(
        self, name: str, broker: AsyncBroker, source: HAScheduleSource, dispatcher: Dispatcher, clock: Clock
    ) -> None:
        super().__init__(broker, [source])
        self.name = name
        self._source, self._dispatcher, self._clock = source, dispatcher, clock
        self._planned_until_ms: int | None = None
        self._last_pass = clock.monotonic()

    async def run(self) -> None:
        """Plan and dispatch until cancelled."""
        self._last_pass = self._clock.monotonic()
        while True:
            self.step()
            await self._dispatcher.flush()
            await asyncio.sleep(self._pause())

    def step(self) -> None:
        """One pass: take what is due and enter it into the book, or leave it to the leader."""
        if self._clock.monotonic() - self._last_pass > STALL_SECONDS:
            self._source.distrust_reports()
        self._last_pass = self._clock.monotonic()
        if self._source.may_send:
            now = self._clock.now_ms()
            for due, schedule in self._source.take_due(now):
                self._dispatcher.add(due, schedule)
            self._planned_until_ms = now
            return
        self._planned_until_ms = None
        if (done := self._source.done_until_ms) is not None:
            self._source.strike_out_done()
            self._dispatcher.settle_until(done)

    def report(self) -> Progress | None:
        """Who sends reports that everything older than its oldest open slot is done; None if that is not us."""
        now = self._planned_until_ms
        if now is None or not self._source.may_send:
            return None
        oldest = self._dispatcher.oldest_slot_ms()
        done = now if oldest is None else max(oldest - 1, now - LOOKBACK_MS)
        return Progress(min(done, now), now, self.name)

    def repeat_since(self, moment: float) -> int:
        """Send again what the queue acknowledged after this monotonic time and lost; answers how many slots."""
        if not self._source.may_send:
            return 0
        lost = [(key, self._source.schedule(key.monitor_id)) for key in self._dispatcher.acknowledged_since(moment)]
        for key, schedule in lost:
            if schedule:
                self._dispatcher.repeat(key, schedule)
        return len(lost)

    def problem(self) -> str | None:
        """Why the beat is not going, or None."""
        age = self._clock.monotonic() - self._last_pass
        return f"no planning pass for {age:.0f} s" if age > STALLED_AFTER_SECONDS else None

    def _pause(self) -> float:
        """Until something is due: at least a tick, so that slots due together share a wake-up."""
        waits = [IDLE_SECONDS]
        if (due := self._source.next_due_ms()) is not None and self._source.may_send:
            waits.append((due - self._clock.now_ms()) / 1000)
        if (retry := self._dispatcher.next_retry()) is not None:
            waits.append(retry - self._clock.monotonic())
        return max(TICK_SECONDS, min(waits))
