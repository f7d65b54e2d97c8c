"""What happens to thousands of slots in an outage, in a line a second: the log must not fill the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shared.domain.clock import Clock

EVERY_SECONDS: Final = 1.0


class Tally:
    """Says how many slots an event befell since it last did, with the newest one as the example."""

    def __init__(self, say: Callable[..., Any], event: str, clock: Clock) -> None:
        self._say, self._event, self._clock = say, event, clock
        self._count = 0
        self._example: dict[str, str] = {}
        self._said_at = float("-inf")

    def add(self, **example: str) -> None:
        """One more; the first one is said at once."""
        self._count += 1
        self._example = example
        self.say()

    def say(self) -> None:
        """Say what was added, unless the last line was a moment ago: then that is left to a later call."""
        now = self._clock.monotonic()
        if self._count and now - self._said_at >= EVERY_SECONDS:
            self._say(self._event, slots=self._count, **self._example)
            self._count, self._said_at = 0, now
