"""A clock that moves when a test says so."""

from __future__ import annotations


class FakeClock:
    """Wall clock and monotonic clock, moved together by ``advance`` and apart by ``jump``."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; the monotonic one does not notice."""
        self._now_ms += round(seconds * 1000)
