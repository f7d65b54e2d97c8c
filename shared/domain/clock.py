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


# Unlike the plain monotonic clock, Linux's boot clock also counts while a virtual machine is suspended: a lease has
# to run out meanwhile.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


class SteadyClock:
    """A wall clock that passes at the pace of the monotonic one and ignores that somebody sets the machine's clock.

    A scheduler that followed such a jump would send an hour of slots too early, or none for an hour. Whether the
    machine or this clock is right is for somebody else to say (``shared.messaging.clock_watch``), who then calls
    ``follow_machine``.
    """

    __slots__ = ("_machine", "_origin_ms", "_started")

    def __init__(self, machine: Clock | None = None) -> None:
        self._machine = machine or SystemClock()
        self.follow_machine()

    def follow_machine(self) -> None:
        """Take the machine's wall clock for right from now on."""
        self._origin_ms = self._machine.now_ms()
        self._started = self._machine.monotonic()

    def now_ms(self) -> int:
        return self._origin_ms + int((self._machine.monotonic() - self._started) * 1000)

    def monotonic(self) -> float:
        return self._machine.monotonic()

    def ahead_ms(self) -> int:
        """By how much the machine's wall clock is ahead of this one; negative when it is behind."""
        return self._machine.now_ms() - self.now_ms()


def to_datetime(milliseconds: int) -> datetime:
    """Milliseconds since 1970 as an aware UTC time, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def to_milliseconds(moment: datetime) -> int:
    """An aware time as whole milliseconds since 1970; refuses a naive one with ``ValueError``."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone cannot be placed: use an aware datetime")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
