"""What a database needs from time to time: partitions for the days to come, and no answers older than a day."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.db.repositories import idempotency, results
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime

log = structlog.get_logger(__name__)

DAYS_AHEAD = 7
EVERY_SECONDS = 3600.0
RETRY_SECONDS = 60.0
_ANSWER_LIFETIME = timedelta(days=1)


async def keep_house(database: Database, clock: Clock) -> None:
    """Create the partitions from yesterday to a week ahead and purge old answers. Cheap; run it hourly."""
    now = to_datetime(clock.now_ms())
    days = (now.date() + timedelta(days=day) for day in range(-1, DAYS_AHEAD + 1))
    async with database.system() as session:
        await results.ensure_partitions(session, days)
        await idempotency.purge(session, now - _ANSWER_LIFETIME)


async def keep_house_hourly(database: Database, clock: Clock) -> None:
    """Keep house now and every hour, until cancelled; a database that is away is asked again in a minute."""
    while True:
        pause = EVERY_SECONDS
        try:
            await keep_house(database, clock)
        except (SQLAlchemyError, OSError) as error:
            log.warning("housekeeping failed and is tried again", error=str(error).partition("\n")[0])
            pause = RETRY_SECONDS
        await asyncio.sleep(pause)
