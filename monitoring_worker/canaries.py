"""Whether this worker sees the world: looked at regularly, and again before a failure is held against a target."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.canary import canary_check, is_reached
from shared.domain.clock import Clock

log = structlog.get_logger(__name__)

LOOK_SECONDS = 10.0
FRESH_SECONDS = 0.5
TIMEOUT_SECONDS = 3.0


class Canaries:
    """``trouble`` says, while all of them fail, why this worker's failures are no evidence."""

    def __init__(self, canaries: Sequence[str], runner: CheckRunner, clock: Clock) -> None:
        """``canaries``: URLs, hosts or host:port, at least one; raises ``ValueError`` for anything else."""
        self._checks = {canary: canary_check(canary) for canary in canaries}
        self._runner, self._clock = runner, clock
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = self._failed_at = float("-inf")
        self.trouble: str | None = None

    async def run(self) -> None:
        """Look every ten seconds, until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def doubt(self, began: float) -> str | None:
        """Why a failure of a check is no evidence, or None; ``began`` is its start on the monotonic clock.

        A look from before that start vouches for nothing: there is another one, for all who ask meanwhile.
        """
        if not self._has_looked_since(began):
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_again())
            await asyncio.shield(self._looking)
        # A network that came back while the check was under way was away for it.
        return self.trouble or ("its canaries failed while it ran" if self._failed_at >= began else None)

    def _has_looked_since(self, began: float) -> bool:
        is_fresh = self._clock.monotonic() - self._looked_at <= FRESH_SECONDS
        return is_fresh and (self.trouble is not None or self._looked_at >= began)

    async def _look_again(self) -> None:
        # However many checks fail, the canaries are asked twice a second.
        await asyncio.sleep(self._looked_at + FRESH_SECONDS - self._clock.monotonic())
        await self._look()

    async def _look(self) -> None:
        reached = await asyncio.gather(*(self._reaches(canary) for canary in self._checks))
        self._looked_at = self._clock.monotonic()
        if any(reached):
            if self.trouble:
                log.info("the canaries answer again")
            self.trouble = None
            return
        self._failed_at = self._looked_at
        if not self.trouble:
            log.error("this worker fails all of its canaries", canaries=list(self._checks))
        self.trouble = f"this worker fails its canaries: {', '.join(self._checks)}"

    async def _reaches(self, canary: str) -> bool:
        verdict = await self._runner.run(self._checks[canary], timeout_seconds=TIMEOUT_SECONDS)
        return is_reached(verdict)
