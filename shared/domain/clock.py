"""Time as a value that is passed in: the only module that reads the machine's clocks.

Wall-clock UTC places slots and results; the monotonic clock measures leases, deadlines and durations, because
it neither jumps with the wall clock nor stands still while a process is frozen.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What the product needs to know of time."""

    def now_ms(self) -> int:
        """Wall clock, UTC, in whole milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def to_datetime(milliseconds: int) -> datetime:
    """Milliseconds since 1970 as an aware UTC time, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def to_milliseconds(moment: datetime) -> int:
    """An aware time as whole milliseconds since 1970; refuses a naive one with ``ValueError``."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone cannot be placed: use an aware datetime")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
