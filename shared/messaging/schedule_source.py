"""Where a scheduler's schedules come from, and whether it may act on them: taskiq's schedule sources, made safe.

Both exist for failures of the originals. The stock source asks the bucket again and again, and now and then reads
it as empty or in part; a scheduler that believes that stops watching. And nothing in it says who of several
schedulers sends.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec
import structlog
from taskiq import ScheduledTask, ScheduleSource
from taskiq.exceptions import ScheduledTaskCancelledError
from taskiq.serializers import JSONSerializer
from taskiq_nats import NATSKeyValueScheduleSource

from shared.contracts.names import RUN_CHECK_TASK, SCHEDULES_BUCKET
from shared.contracts.wire import Progress, Schedule
from shared.domain.clock import Clock
from shared.domain.planner import DueSlot, SlotQueue
from shared.domain.slots import Cadence
from shared.messaging.connect import NatsConnection
from shared.messaging.mirror import ChangeListener, KeyValueMirror
from shared.observability import metrics

log = structlog.get_logger(__name__)

OVERDUE_MS = 1_000
LOOKBACK_MS = 60_000
# What is older is left to the slot audit: a scheduler that starts has checks to send, not records to write.
MAX_BACKLOG_MS = 120_000
FORGET_AFTER_MS = 3_600_000
FORGET_EVERY_MS = 60_000
CLOCK_TOLERANCE_MS = 2_000


class ResilientNATSScheduleSource(NATSKeyValueScheduleSource):
    """The bucket of schedules as a live mirror over an existing connection.

    Never read as empty or in part while the bucket holds entries, at any size and right after the start; a bucket
    that really is empty is reported at ERROR. Values are JSON: the stock source would unpickle whatever lies there.
    """

    def __init__(self, connection: NatsConnection, *, bucket: str = SCHEDULES_BUCKET, grace: float = 30.0) -> None:
        super().__init__(servers=[], bucket_name=bucket, serializer=JSONSerializer())
        self._mirror = KeyValueMirror(connection, bucket, grace=grace)
        self._running: asyncio.Task[None] | None = None

    @property
    def staleness(self) -> float:
        """Seconds since the mirror was last known to equal the bucket."""
        return self._mirror.staleness

    def add_listener(self, listener: ChangeListener) -> None:
        """Report every schedule that is found or changes from now on, None for one that is gone."""
        self._mirror.add_listener(listener)

    async def run(self) -> None:
        """Follow the bucket until cancelled."""
        await self._mirror.run()

    async def loaded(self) -> None:
        """Return once everything in the bucket is known."""
        await self._mirror.ready.wait()

    async def startup(self) -> None:
        """Begin to follow the bucket and wait until it is known, for use without a supervisor of ``run``."""
        self._running = asyncio.create_task(self.run())
        await self.loaded()

    async def shutdown(self) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def get_schedules(self) -> list[ScheduledTask]:
        """Every readable schedule, as taskiq knows them; one that can't be read is left out and logged."""
        await self.loaded()
        found = ((key, read_schedule(key, value)) for key, value in self._mirror.data.items())
        return [_as_task(schedule) for _, schedule in found if schedule]

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Refused: the bucket is a copy of the database, and its relay the only writer."""
        raise NotImplementedError("schedules are written by the relay: change the monitor instead")

    async def delete_schedule(self, schedule_id: str) -> None:
        """Refused, as ``add_schedule`` is."""
        raise NotImplementedError("schedules are written by the relay: change the monitor instead")

    async def post_send(self, task: ScheduledTask) -> None:
        """Nothing: the stock source would delete a schedule here."""


def read_schedule(key: str, value: bytes) -> Schedule | None:
    """A value of the bucket, or None: one that can't be read affects its own monitor only."""
    try:
        return msgspec.json.decode(value, type=Schedule)
    except (msgspec.DecodeError, RecursionError) as error:
        log.error("a schedule can't be read", key=key, error=str(error))
        return None


def _as_task(schedule: Schedule) -> ScheduledTask:
    labels: dict[str, Any] = {"regions": list(schedule.regions), "revision": schedule.revision}
    return ScheduledTask(
        task_name=RUN_CHECK_TASK,
        labels=labels,
        args=[],
        kwargs={},
        schedule_id=str(schedule.monitor_id),
        interval=timedelta(milliseconds=schedule.interval_ms),
    )


class Lease(Protocol):
    owner: str

    @property
    def holds(self) -> bool: ...


class HAScheduleSource(ScheduleSource):
    """What is due, and whether this scheduler may send it: the same answer in every scheduler, from one of them.

    All of them hold the same schedules and the same queue of slots. The leader sends, and reports how far it has
    come; a standby strikes out what is reported as done. When the report is overdue by a second a standby may send
    as well, lease or no lease: message ids make a slot that two schedulers send run once. Who sends reports, and
    whoever reported last goes on until somebody else is heard: also while nobody can renew or take the lease. A
    slot is recorded as sent after the queue or a worker has acknowledged it, never before.
    """

    def __init__(self, source: ScheduleSource, lease: Lease, clock: Clock) -> None:
        self._source, self._lease, self._clock = source, lease, clock
        self._queue = SlotQueue()
        self._schedules: dict[UUID, Schedule] = {}
        self._forgot_ms = 0
        self._reported: Progress | None = None
        self._reports_trusted_from = clock.monotonic()
        self._warm = False
        self._is_cut_off = False

    def __len__(self) -> int:
        return len(self._schedules)

    @property
    def may_send(self) -> bool:
        """Asked before every single send: this scheduler leads, or no other reports."""
        return self._lease.holds or self._leader_is_overdue()

    @property
    def done_until_ms(self) -> int | None:
        """Up to where the leader reports every slot as acknowledged, or None without a report."""
        return self._reported.done_until_ms if self._reported else None

    async def get_schedules(self) -> list[ScheduledTask]:
        return await self._source.get_schedules()

    async def pre_send(self, task: ScheduledTask) -> None:  # noqa: ARG002 the role decides, whatever the task
        """For tasks that go through taskiq itself; raises ``ScheduledTaskCancelledError`` on a standby."""
        if not self.may_send:
            raise ScheduledTaskCancelledError

    def schedules_loaded(self) -> None:
        """What the bucket held at the start is known; what appears from now on is new, or was lost and restored."""
        self._warm = True

    def schedule(self, monitor_id: UUID) -> Schedule | None:
        return self._schedules.get(monitor_id)

    def schedule_changed(self, key: str, value: bytes | None) -> None:
        """A change in the bucket of schedules."""
        try:
            monitor_id = UUID(key)
        except ValueError:
            log.error("the bucket of schedules holds a key that is no monitor", key=key)
            return
        if value is None:
            self._schedules.pop(monitor_id, None)
            self._queue.remove(monitor_id)
        elif schedule := read_schedule(key, value):
            self._schedules[monitor_id] = schedule
            cadence = Cadence(monitor_id, schedule.interval_ms, schedule.starts_at_ms)
            self._queue.put(cadence, self._floor_ms(schedule))
        metrics.scheduler_schedules.set(len(self._schedules))

    def progress_reported(self, progress: Progress) -> None:
        """A report of whoever sends, also one left by an earlier run. One from the future is a clock gone wrong.

        One that is older than what is known is an echo: reports are heard when they are sent and again when the
        bucket has stored them.
        """
        if progress.planned_until_ms > self._clock.now_ms() + CLOCK_TOLERANCE_MS:
            log.error("a scheduler reports slots of the future; compare the clocks", scheduler=progress.scheduler)
            return
        if self._reported is None or progress.planned_until_ms >= self._reported.planned_until_ms:
            self._reported = progress

    def distrust_reports(self) -> None:
        """Don't take silence for a dead leader just now: we were cut off or frozen, and reports are on their way.

        Without this, a leader that wakes from a long freeze would send what its successor has sent meanwhile.
        """
        self._reports_trusted_from = self._clock.monotonic() + OVERDUE_MS / 1000

    def cut_off(self) -> None:
        """Without a connection nobody else is heard: what is sent first over the next one must not be a guess."""
        self._is_cut_off = True

    def rejoined(self) -> None:
        self._is_cut_off = False
        self.distrust_reports()

    def lease_changed(self, leads: bool, _reason: str) -> None:
        """Listen for a successor before going on without the lease."""
        if not leads:
            self.distrust_reports()

    def take_due(self, now_ms: int) -> list[tuple[DueSlot, Schedule]]:
        """All slots that are due and not done; each is given out once."""
        due = [(slot, self._schedules[slot.cadence.monitor_id]) for slot in self._queue.take_due(now_ms)]
        if now_ms - self._forgot_ms > FORGET_EVERY_MS:  # it walks over all monitors, so not in every pass
            self._forgot_ms = now_ms
            self._queue.forget(now_ms - FORGET_AFTER_MS)
        return due

    def strike_out_done(self) -> None:
        """Leave what is reported as done to the scheduler that did it."""
        if self._reported:
            self._queue.take_due(self._reported.done_until_ms)

    def next_due_ms(self) -> int | None:
        return self._queue.next_due_ms()

    def _leader_is_overdue(self) -> bool:
        if self._reported is None or self._is_cut_off or self._clock.monotonic() < self._reports_trusted_from:
            return False
        is_own = self._reported.scheduler == self._lease.owner
        return is_own or self._clock.now_ms() - self._reported.planned_until_ms > OVERDUE_MS

    def _floor_ms(self, schedule: Schedule) -> int:
        """Up to where the slots of a schedule that just appeared count as done.

        A scheduler that starts resumes where the last report stands. Later, what appears is a new monitor, whose
        first slot lies a moment in the past, or one that was lost and restored: as far back as message ids reach.
        """
        now = self._clock.now_ms()
        resume = now - LOOKBACK_MS
        if self._reported and not self._warm:
            resume = min(self._reported.done_until_ms, now)
        return max(schedule.starts_at_ms - 1, resume, now - MAX_BACKLOG_MS)
