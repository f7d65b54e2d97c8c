"""What a database needs from time to time: room for the days to come, and an end for what nobody needs any more."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories import api_keys, deliveries, idempotency, results
from shared.domain.clock import Clock, to_datetime

DAYS_AHEAD = 7
ANSWER_LIFETIME = timedelta(days=1)
DEAD_KEY_LIFETIME = timedelta(days=90)
"""How long a key that was revoked or ran out can still be looked up by people who search for its user."""


async def make_room(session: AsyncSession, clock: Clock) -> int:
    """Create the missing partitions from yesterday to a week ahead; answers how many there were."""
    today = to_datetime(clock.now_ms()).date()
    days = (today + timedelta(days=day) for day in range(-1, DAYS_AHEAD + 1))
    return await results.ensure_partitions(session, days)


async def drop_old_results(session: AsyncSession, clock: Clock, retention_days: int) -> int:
    """Drop the days that are older than the retention, whole; answers how many there were."""
    today = to_datetime(clock.now_ms()).date()
    return await results.drop_partitions(session, today - timedelta(days=retention_days))


async def forget_answers(session: AsyncSession, clock: Clock) -> int:
    """Forget answers to POSTs that nobody repeats any more; answers how many."""
    return await idempotency.purge(session, to_datetime(clock.now_ms()) - ANSWER_LIFETIME)


async def forget_dead_keys(session: AsyncSession, clock: Clock) -> int:
    """Delete API keys that were revoked or ran out long ago; answers how many."""
    return await api_keys.purge(session, to_datetime(clock.now_ms()) - DEAD_KEY_LIFETIME)


async def forget_deliveries(session: AsyncSession, clock: Clock, retention_days: int) -> int:
    """Delete notifications that were settled before the retention; answers how many."""
    return await deliveries.purge(session, to_datetime(clock.now_ms()) - timedelta(days=retention_days))
