"""The three ways out of a scheduler. Each has its own room, so that one that gets no answers holds up no other."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from shared.domain.errors import MissedReason
from shared.domain.result import SlotKey

FIRST_PAUSE_SECONDS = 0.25


class Sender(Protocol):
    """The publishing side of the queue: returns once written; the future resolves with the acknowledgement."""

    @property
    def has_room(self) -> bool:
        """Whether ``publish`` would write at once, without waiting for an earlier acknowledgement."""
        ...

    async def publish(self, subject: str, payload: bytes, *, message_id: str) -> asyncio.Future[Any]: ...


@dataclass(slots=True, eq=False)
class Entry:
    """One message in the book: a check to run, or the record of a missed one."""

    key: SlotKey
    subject: str
    payload: bytes
    message_id: str
    revision: int
    is_check: bool
    longest_pause: float
    pause: float = FIRST_PAUSE_SECONDS
    reason: MissedReason = MissedReason.SCHEDULER_GAP
    patience_ms: int = 0
    by_hand: bool = False
    in_flight: bool = False
    superseded: bool = False


class Lane:
    """Entries that wait for their moment (monotonic seconds), and who sends them."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self._waiting: list[tuple[float, int, Entry]] = []
        self._order = count()

    def put(self, entry: Entry, not_before: float) -> None:
        heapq.heappush(self._waiting, (not_before, next(self._order), entry))

    def has_next(self, now: float) -> bool:
        """Whether an entry's moment has come, and there is room to send it."""
        return bool(self._waiting) and self._waiting[0][0] <= now and self.sender.has_room

    def pop(self) -> Entry:
        return heapq.heappop(self._waiting)[2]

    def next_moment(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None
