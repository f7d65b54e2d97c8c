"""From due slots to the queue: every slot stays in the book until the queue has acknowledged it.

A slot that the queue refuses (the monitor's last check still waits or runs) or that can't be sent (the queue is
away) is tried again under the same message id. When the monitor's next slot comes first, the older one is recorded
as missed with its reason. So each slot ends once: acknowledged, or recorded.

A queue without an answer is not the end: NATS may well be there, only the stream has no leader or no room. Then a
slot is offered to the workers of its region directly, and the one that takes it acknowledges it. So is a slot that
was refused for half its interval: the check before it lies in a queue that nobody is given messages of. That our
own connection was lost says nothing about the stream: another scheduler may have put the same slots into it, or it
may be as silent as before. One check asks it before the others follow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from monitoring_scheduler.lane import Entry, Lane, Sender
from monitoring_scheduler.tally import Tally
from shared.contracts import names
from shared.contracts.wire import CheckOrder, ResultBatch, ResultMessage, Schedule
from shared.domain.clock import Clock
from shared.domain.errors import MissedReason
from shared.domain.planner import DueSlot
from shared.domain.result import SlotKey, missed
from shared.messaging.errors import ConnectionLostError, PublishRejectedError, PublishUnknownError
from shared.messaging.task_format import encode_task
from shared.observability import metrics

log = structlog.get_logger(__name__)

OFFER_PAUSE_SECONDS = 0.1
SILENCE_SECONDS = 5.0
SHORTEST_LIMIT_SECONDS = 0.5
LONGEST_LIMIT_SECONDS = 30.0
MAX_MISSED_WAITING = 200_000
REMEMBERED_SECONDS = 30.0

_MESSAGES = {
    MissedReason.SCHEDULER_GAP: "no scheduler could dispatch this check before the next one was due",
    MissedReason.WORKER_GAP: "no worker took the monitor's check before this one was overtaken by the next",
    MissedReason.OVERLOADED: "the queue was too full to take this check before the next one was due",
}


class Dispatcher:
    """The book of slots that are due and not yet acknowledged."""

    def __init__(
        self, checks: Sender, offers: Sender, records: Sender, clock: Clock, permitted: Callable[[], bool]
    ) -> None:
        """Each sender has a window of its own; that of ``offers`` has a shorter patience than the others."""
        self._checks, self._offers, self._records = Lane(checks), Lane(offers), Lane(records)
        self._lanes = self._checks, self._offers, self._records
        self._clock, self._permitted = clock, permitted
        self._book: dict[str, Entry] = {}
        self._newest: dict[tuple[object, str], Entry] = {}
        self._missed_waiting = 0
        self._silent_until = float("-inf")
        self._is_doubted = False
        self._asking: Entry | None = None
        self._acknowledged: deque[tuple[float, SlotKey]] = deque()
        self._unacknowledged = Tally(log.warning, "slots were not acknowledged by the queue", clock)
        self._unrecorded = Tally(log.error, "too many missed slots wait to be recorded", clock)

    def __len__(self) -> int:
        return len(self._book)

    def add(self, due: DueSlot, schedule: Schedule) -> None:
        """Enter a monitor's due slot for each of its regions, and those passed over as missed."""
        for region in schedule.regions:
            for slot_ms in due.superseded_ms:
                key = SlotKey(schedule.monitor_id, region, slot_ms)
                self._record_missed(key, schedule.revision, MissedReason.SCHEDULER_GAP)
            self._enter_check(schedule, region, due.slot_ms)
        metrics.slots_due.inc(len(schedule.regions) * (1 + len(due.superseded_ms)))

    def acknowledged_since(self, moment: float) -> list[SlotKey]:
        """Slots that the queue acknowledged after this monotonic time, as far as they are remembered."""
        return [key for acknowledged, key in self._acknowledged if acknowledged >= moment]

    def repeat(self, key: SlotKey, schedule: Schedule) -> None:
        """Send a slot again that the queue acknowledged and then lost, unless a newer one is on its way."""
        newest = self._newest.get((key.monitor_id, key.region))
        if newest is None or newest.key.slot_ms < key.slot_ms:
            self._enter_check(schedule, key.region, key.slot_ms)

    def oldest_slot_ms(self) -> int | None:
        """The oldest slot that is neither acknowledged nor recorded, or None when the book is empty."""
        return min((entry.key.slot_ms for entry in self._book.values()), default=None)

    def settle_until(self, mark_ms: int) -> None:
        """Strike out what another scheduler reports as done."""
        for message_id, entry in list(self._book.items()):
            if entry.key.slot_ms <= mark_ms and not entry.in_flight:
                self._strike(message_id, entry)

    def next_retry(self) -> float | None:
        """The monotonic time of the next entry to send, or None."""
        return min((moment for lane in self._lanes if (moment := lane.next_moment()) is not None), default=None)

    async def flush(self) -> None:
        """Send all that may be sent now and finds room. The permission is asked again before every single one."""
        now = self._clock.monotonic()
        for lane in self._lanes:
            while lane.has_next(now) and self._permitted():
                entry = lane.pop()
                if self._book.get(entry.message_id) is not entry:
                    continue
                if lane is not self._checks or self._may_ask_the_stream(entry):
                    await self._send(lane, entry)
                elif self._is_silent:
                    entry.by_hand = True
                    self._offers.put(entry, now)
                else:
                    lane.put(entry, now + OFFER_PAUSE_SECONDS)
        self._unacknowledged.say()
        self._unrecorded.say()

    def _enter_check(self, schedule: Schedule, region: str, slot_ms: int) -> None:
        key = SlotKey(schedule.monitor_id, region, slot_ms)
        if key.message_id in self._book:
            return
        place = (schedule.monitor_id, region)
        if older := self._newest.get(place):
            self._supersede(older)
        order = CheckOrder(
            monitor_id=schedule.monitor_id,
            revision=schedule.revision,
            region=region,
            slot_ms=slot_ms,
            interval_ms=schedule.interval_ms,
            run=schedule.run,
        )
        payload = encode_task(names.RUN_CHECK_TASK, key.message_id, msgspec.json.encode(order))
        subject = names.check_subject(region, schedule.monitor_id)
        # Ten tries in an interval are plenty, and many monitors may be waiting for a region without workers.
        limit = min(max(SHORTEST_LIMIT_SECONDS, schedule.interval_ms / 10_000), LONGEST_LIMIT_SECONDS)
        entry = Entry(key, subject, payload, key.message_id, schedule.revision, is_check=True, longest_pause=limit)
        entry.patience_ms = schedule.interval_ms // 2
        self._newest[place] = entry
        self._enter(entry)

    def _supersede(self, entry: Entry) -> None:
        if entry.in_flight:
            entry.superseded = True  # its acknowledgement may still come: that decides
            return
        self._strike(entry.message_id, entry)
        self._record_missed(entry.key, entry.revision, entry.reason)

    def _record_missed(self, key: SlotKey, revision: int, reason: MissedReason) -> None:
        if self._missed_waiting >= MAX_MISSED_WAITING:
            # The slot audit finds it from the database; remembering it here would exhaust memory.
            self._unrecorded.add(slot=key.message_id)
            return
        message = ResultMessage(
            monitor_id=key.monitor_id,
            revision=revision,
            region=key.region,
            slot_ms=key.slot_ms,
            started_at_ms=None,
            verdict=missed(reason, _MESSAGES[reason]),
        )
        subject = names.result_subject(key.region)
        payload = msgspec.json.encode(ResultBatch((message,)))
        message_id, limit = f"missed:{key.message_id}", LONGEST_LIMIT_SECONDS
        if message_id not in self._book:
            self._missed_waiting += 1
            entry = Entry(key, subject, payload, message_id, revision, is_check=False, longest_pause=limit)
            entry.reason = reason
            self._enter(entry)

    def _enter(self, entry: Entry) -> None:
        self._book[entry.message_id] = entry
        self._lane_of(entry).put(entry, 0.0)

    def _lane_of(self, entry: Entry) -> Lane:
        if not entry.is_check:
            return self._records
        return self._offers if entry.by_hand else self._checks

    def _strike(self, message_id: str, entry: Entry) -> None:
        del self._book[message_id]
        if not entry.is_check:
            self._missed_waiting -= 1
        elif self._newest.get((entry.key.monitor_id, entry.key.region)) is entry:
            del self._newest[entry.key.monitor_id, entry.key.region]

    async def _send(self, lane: Lane, entry: Entry) -> None:
        entry.in_flight = True
        subject = names.hand_over_subject(entry.key.region) if entry.by_hand else entry.subject
        # Many wait for the answer to the first question after a lost connection.
        sender = self._offers.sender if self._is_doubted and entry is self._asking else lane.sender
        future = await sender.publish(subject, entry.payload, message_id=entry.message_id)
        future.add_done_callback(lambda done: self._settled(entry, done))

    def _may_ask_the_stream(self, entry: Entry) -> bool:
        """One that may be silent is asked with one check at a time; the others must not wait for its deadline."""
        if not (self._is_silent or self._is_doubted):
            return True
        if self._asking is not None:
            return False
        self._asking = entry
        return True

    @property
    def _is_silent(self) -> bool:
        """No longer known after a while: a standby that takes over must not act on what it met last time."""
        return self._clock.monotonic() <= self._silent_until

    def _settled(self, entry: Entry, done: asyncio.Future[Any]) -> None:
        if self._asking is entry:
            self._asking = None
        error = PublishUnknownError("cancelled") if done.cancelled() else done.exception()
        if entry.is_check and not entry.by_hand:
            self._note_silence(error)
        if error is not None:
            self._failed(entry, error)
            return
        self._strike(entry.message_id, entry)
        if entry.is_check:
            self._count_dispatched(entry)
        else:
            metrics.slots_missed.labels(entry.reason.value).inc()

    def _note_silence(self, error: BaseException | None) -> None:
        self._is_doubted = isinstance(error, ConnectionLostError)
        if self._is_doubted:
            return
        is_silent = isinstance(error, PublishUnknownError)
        self._silent_until = self._clock.monotonic() + SILENCE_SECONDS if is_silent else float("-inf")

    def _count_dispatched(self, entry: Entry) -> None:
        if entry.by_hand:
            metrics.slots_handed_over.inc()
        else:
            self._remember(entry.key)
        metrics.slots_dispatched.inc()
        metrics.dispatch_lateness.observe((self._clock.now_ms() - entry.key.slot_ms) / 1000)

    def _remember(self, key: SlotKey) -> None:
        now = self._clock.monotonic()
        self._acknowledged.append((now, key))
        while self._acknowledged[0][0] < now - REMEMBERED_SECONDS:
            self._acknowledged.popleft()

    def _failed(self, entry: Entry, error: BaseException) -> None:
        entry.in_flight = False
        pause = entry.pause
        if entry.by_hand:
            # One worker of several may be cut off: after silence, which took its time, another is asked.
            entry.by_hand = type(error) is PublishUnknownError and self._is_silent
            pause = OFFER_PAUSE_SECONDS if entry.by_hand else pause
            log.debug("no worker takes a slot directly", slot=entry.key.message_id, error=str(error))
        else:
            entry.reason = _reason(error)
            entry.by_hand = entry.is_check and self._is_worth_an_offer(entry, error)
            pause = 0.0 if entry.by_hand else pause
            if entry.reason is not MissedReason.WORKER_GAP:
                self._unacknowledged.add(slot=entry.key.message_id, error=str(error))
        if entry.superseded:
            self._supersede(entry)
        else:
            self._try_again(entry, pause)

    def _is_worth_an_offer(self, entry: Entry, error: BaseException) -> bool:
        if isinstance(error, ConnectionLostError):
            return False
        # The check before may just be running: only after a while does its place count as stuck.
        age_ms = self._clock.now_ms() - entry.key.slot_ms
        return entry.reason is not MissedReason.WORKER_GAP or age_ms >= entry.patience_ms

    def _try_again(self, entry: Entry, pause: float) -> None:
        self._lane_of(entry).put(entry, self._clock.monotonic() + pause)
        if pause:
            entry.pause = min(entry.pause * 2, entry.longest_pause)


def _reason(error: BaseException) -> MissedReason:
    """Whose fault it is that the queue did not take a slot."""
    if not isinstance(error, PublishRejectedError) or not error.err_code:
        return MissedReason.SCHEDULER_GAP  # no answer, or one of our own client
    # What JetStream itself refuses for another reason than the check before: it is full, of bytes or of messages.
    return MissedReason.WORKER_GAP if error.is_occupied else MissedReason.OVERLOADED
