"""When a child that ended is started again. Pure, so that the rule can be read and tested as a table."""

from __future__ import annotations

from dataclasses import dataclass

EXIT_CONFIGURATION = 2
STEADY_SECONDS = 5.0
MAX_FAILED_STARTS = 5
FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a child: how it ended, and for how long it had been ready (None: it never was)."""

    exit_code: int
    ready_seconds: float | None


@dataclass(frozen=True, slots=True)
class History:
    """What the lives of a child so far say about the next one."""

    was_ever_ready: bool = False
    hasty_ends: int = 0
    last_exit_code: int = 0

    def after(self, life: Life) -> History:
        steady = life.ready_seconds is not None and life.ready_seconds >= STEADY_SECONDS
        return History(
            was_ever_ready=self.was_ever_ready or life.ready_seconds is not None,
            hasty_ends=0 if steady else self.hasty_ends + 1,
            last_exit_code=life.exit_code,
        )

    @property
    def hopeless(self) -> bool:
        """A child that was never ready is misconfigured; one that was is in trouble that may pass.

        The second is restarted for ever: a frozen queue server must not end the monitoring of everything.
        """
        if self.was_ever_ready:
            return False
        return self.last_exit_code == EXIT_CONFIGURATION or self.hasty_ends >= MAX_FAILED_STARTS

    @property
    def delay_seconds(self) -> float:
        """How long to wait before the next start: doubled for every life in a row that was not steady."""
        return float(min(FIRST_DELAY_SECONDS * 2 ** max(self.hasty_ends - 1, 0), MAX_DELAY_SECONDS))
