"""A heartbeat to a watcher outside: it stops when the installation does not really work, or is gone altogether."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.db.session import Database
from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.services.watchdog import Watchdog

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 5.0
SIGHT_SECONDS: Final = 30.0
DATABASE_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 10.0

Knock = Callable[[], Awaitable[str | None]]


class OutsideHeartbeat:
    """``knock`` sends a beat and answers what went wrong, or None; ``problem`` why none should be sent, or None."""

    def __init__(self, knock: Knock, problem: Callable[[], Awaitable[str | None]], every_seconds: float) -> None:
        self._knock, self._problem, self._every = knock, problem, every_seconds
        self._told: str | None = None

    async def run(self) -> None:
        """Beat until cancelled; a beat that is held back or lost is tried again in a moment."""
        while not is_cancelled():
            trouble = await self._problem()
            lost = None if trouble else await self._knock()
            self._tell(f"held back: {trouble}" if trouble else lost and f"not received: {lost}")
            await asyncio.sleep(min(self._every, RETRY_SECONDS) if trouble or lost else self._every)

    def _tell(self, trouble: str | None) -> None:
        """A line when it changes."""
        if trouble and trouble != self._told:
            log.warning("heartbeat to the outside", problem=trouble)
        elif self._told and not trouble:
            log.info("heartbeat to the outside is sent again")
        self._told = trouble


async def installation_problem(database: Database, watchdog: Watchdog, clock: Clock) -> str | None:
    """Why this installation can't be said to work, or None."""
    if watchdog.alarms:
        return "; ".join(f"{part}: {problem}" for part, problem in sorted(watchdog.alarms.items()))
    if watchdog.looked_at is None or clock.monotonic() - watchdog.looked_at > SIGHT_SECONDS:
        return "the watchdog has not looked for a while"
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            await database.ping()
    except (TimeoutError, OSError, SQLAlchemyError):
        return "PostgreSQL does not answer"
    return None
