"""Where the time of a check goes: one phase at a time, added up over all its requests."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from shared.domain.result import Timings


class Phase(StrEnum):
    """In the order of the fields of ``Timings``, which carry the values as their names."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    FIRST_BYTE = "first_byte"
    TRANSFER = "transfer"


class Stopwatch:
    """Runs from its creation. ``monotonic`` gives seconds, as ``Clock.monotonic`` does."""

    __slots__ = ("_monotonic", "_seconds", "_since", "_started", "_stopped", "phase")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._started = self._since = monotonic()
        self._stopped: float | None = None
        self._seconds = dict.fromkeys(Phase, 0.0)
        self.phase: Phase | None = None

    def enter(self, phase: Phase, at: float | None = None) -> None:
        """Begin a phase, and with that end the one before; ``at`` is when, where that is not now."""
        now = self._monotonic() if at is None else at
        if self.phase is not None:
            self._seconds[self.phase] += now - self._since
        self.phase, self._since = phase, now

    def pause(self) -> None:
        """End the phase without beginning another."""
        now = self._monotonic()
        if self.phase is not None:
            self._seconds[self.phase] += now - self._since
        self.phase, self._stopped = None, now

    def timings(self) -> Timings:
        """The sums up to the last pause, which is now unless a response was complete before."""
        if self.phase is not None or self._stopped is None:
            self.pause()
        assert self._stopped is not None
        total = self._stopped - self._started
        return Timings(*map(_milliseconds, (*self._seconds.values(), total)))


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
