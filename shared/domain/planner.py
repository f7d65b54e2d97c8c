"""Which slots are due: pure, so that it can be proven before anything is sent.

``plan`` says it over all schedules at once. ``SlotQueue`` says the same step by step, at a cost that grows with
what is due and not with how many monitors there are; a property test holds the two against each other.

Of a monitor with several overdue slots only the newest is run: older answers could not be given any more. The
others are returned as superseded, for the caller to record as missed, so that each slot is accounted for once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.domain.slots import Cadence, latest_slot_ms, next_slot_ms, slots_between


@dataclass(frozen=True, slots=True)
class DueSlot:
    """One monitor's due slots at one moment: run ``slot_ms``; ``superseded_ms`` (oldest first) were passed over."""

    cadence: Cadence
    slot_ms: int
    superseded_ms: tuple[int, ...] = ()


def due_slot(cadence: Cadence, done_until_ms: int, now_ms: int) -> DueSlot | None:
    """What is due of one monitor in ``(done_until_ms, now_ms]``, or None."""
    newest = latest_slot_ms(cadence, now_ms)
    if newest is None or newest <= done_until_ms:
        return None
    return DueSlot(cadence, newest, tuple(slots_between(cadence, done_until_ms, newest - 1)))


def plan(cadences: Iterable[Cadence], watermark_ms: int, now_ms: int) -> list[DueSlot]:
    """All that is due in ``(watermark_ms, now_ms]``, in order of the slots to run.

    A watermark ahead of now (the clock went back) plans nothing: those slots are done already.
    """
    found = (due_slot(cadence, watermark_ms, now_ms) for cadence in cadences)
    return sorted((due for due in found if due), key=lambda due: (due.slot_ms, due.cadence.monitor_id))


class SlotQueue:
    """The schedules of a scheduler, ordered by their next slot.

    Each monitor has its own mark up to which its slots are done, so a schedule that arrives late, is rebuilt or
    changes its interval loses nothing and repeats nothing. An unknown monitor starts from ``floor_ms``.
    """

    def __init__(self) -> None:
        self._cadences: dict[UUID, Cadence] = {}
        self._done_until: dict[UUID, int] = {}
        self._heap: list[tuple[int, UUID]] = []

    def __len__(self) -> int:
        return len(self._cadences)

    def put(self, cadence: Cadence, floor_ms: int) -> None:
        """Add a monitor or change its timing; slots up to ``floor_ms`` count as done unless known better."""
        self._cadences[cadence.monitor_id] = cadence
        done = self._done_until.setdefault(cadence.monitor_id, floor_ms)
        heapq.heappush(self._heap, (next_slot_ms(cadence, done), cadence.monitor_id))

    def remove(self, monitor_id: UUID) -> None:
        """Stop planning a monitor; what was done of it stays known, for the case that it comes back."""
        self._cadences.pop(monitor_id, None)

    def forget(self, before_ms: int) -> None:
        """Let go of the marks of monitors that were removed and not seen since ``before_ms``."""
        gone = [key for key, done in self._done_until.items() if key not in self._cadences and done < before_ms]
        for monitor_id in gone:
            del self._done_until[monitor_id]

    def next_due_ms(self) -> int | None:
        """When something is due next; it may name a moment at which a stale entry is merely dropped."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[DueSlot]:
        """Remove and return all that is due at ``now_ms``, each slot once, in order."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            slot, monitor_id = heapq.heappop(self._heap)
            if due := self._take(slot, monitor_id, now_ms):
                found.append(due)
        return sorted(found, key=lambda due: (due.slot_ms, due.cadence.monitor_id))

    def _take(self, slot_ms: int, monitor_id: UUID, now_ms: int) -> DueSlot | None:
        cadence = self._cadences.get(monitor_id)
        if cadence is None:
            return None
        done = self._done_until[monitor_id]
        if slot_ms != next_slot_ms(cadence, done):
            return None  # left over from before a change of timing, which pushed an entry of its own
        due = due_slot(cadence, done, now_ms)
        self._done_until[monitor_id] = due.slot_ms if due else done
        heapq.heappush(self._heap, (next_slot_ms(cadence, self._done_until[monitor_id]), monitor_id))
        return due

    def done_until(self) -> Mapping[UUID, int]:
        """Per monitor, the newest slot that was taken; for tests and diagnosis."""
        return self._done_until
