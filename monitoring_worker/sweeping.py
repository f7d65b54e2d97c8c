"""What keeps incidents true while no result comes: alerts that wait, and monitors that nobody sees any more."""

from __future__ import annotations

import asyncio

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.db.repositories.incidents import count_open
from shared.db.repositories.state import mark_blind
from shared.db.repositories.suspicion import purge_beats, take_sweep_lock
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.domain.mass_failure import WINDOW_MS
from shared.messaging.cancellation import is_cancelled
from shared.observability import metrics
from shared.services.holds import sweep

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 0.25
LOOK_SECONDS = 10.0
PAUSE_SECONDS = 2.0


class IncidentSweeper:
    """Runs in every process with a database; a lock there lets one of them work at a time."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        # Results that waited while nobody recorded come first: a monitor is not blind before that.
        self._looked_at = clock.monotonic()

    async def run(self) -> None:
        """Sweep four times a second and look for blind monitors every ten seconds, until cancelled."""
        while not is_cancelled():
            try:
                await self.sweep()
                if self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:
                    await self.look()
                    self._looked_at = self._clock.monotonic()
            except (SQLAlchemyError, OSError) as error:
                log.warning("incidents could not be swept", error=str(error).partition("\n")[0])
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Judge the alerts that wait."""
        async with self._database.system() as session:
            await sweep(session, self._clock.now_ms())

    async def look(self) -> None:
        """Turn monitors unknown that nobody sees any more, and forget what workers saw long ago."""
        now_ms = self._clock.now_ms()
        async with self._database.system() as session:
            metrics.incidents_open.set(await count_open(session))
            if await take_sweep_lock(session):
                if blind := await mark_blind(session, now_ms):
                    log.warning("monitors have no verdict and are unknown now", monitors=blind)
                await purge_beats(session, now_ms - 2 * WINDOW_MS)
