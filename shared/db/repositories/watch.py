"""What the watchdog asks of the database; for system sessions."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.domain.region import PLATFORM_REGION

# A monitor is seen by its last verdict; one that just started has three intervals for its first.
_SIGHT = text("""
    SELECT count(*),
        count(*) FILTER (WHERE greatest(p.starts_at, s.last_slot_at)
            < now() - 3 * m.interval_seconds * interval '1 second' - interval '30 seconds')
    FROM monitors AS m
    JOIN monitor_state AS s ON s.monitor_id = m.id
    JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
    WHERE m.paused_at IS NULL
""")
_REGIONS = text("""
    SELECT DISTINCT unnest(regions) FROM monitors WHERE paused_at IS NULL AND kind <> 'heartbeat'
    UNION SELECT :platform WHERE EXISTS (SELECT FROM jobs WHERE runs_in = 'worker')
""")


async def monitors_in_sight(session: AsyncSession) -> tuple[int, int]:
    """How many monitors are active, and how many of them are blind."""
    active, blind = (await session.execute(_SIGHT)).one()
    return active, blind


async def active_regions(session: AsyncSession) -> list[str]:
    """Every region in which something is to be checked, and the platform's when it has jobs for workers."""
    return list((await session.execute(_REGIONS, {"platform": PLATFORM_REGION})).scalars())
