"""What the scheduler has to know, as PostgreSQL has it: for the relay, the reconciler and the audit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories.outbox import SCHEDULE_TOPIC


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A monitor that is due from ``starts_at`` on; ``check_spec`` is JSON text with its secrets sealed."""

    monitor_id: UUID
    organisation_id: UUID
    revision: int
    interval_seconds: int
    starts_at: datetime
    regions: list[str]
    check_spec: str
    timeout_seconds: float
    retries: int
    retry_delay_seconds: float


_ACTIVE = text("""
    SELECT m.id, m.organisation_id, m.revision, m.interval_seconds, p.starts_at, m.regions, m.check_spec::text,
        m.timeout_seconds, m.retries, m.retry_delay_seconds
    FROM monitors AS m JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
    WHERE m.id = ANY(CAST(:monitor_ids AS uuid[]))
""")
_REVISIONS = text("""
    SELECT id, revision FROM monitors WHERE paused_at IS NULL AND kind <> 'heartbeat'
    UNION ALL SELECT schedule_id, revision FROM jobs WHERE runs_in = 'worker'
""")
# A monitor that is gone has left its periods; a key of which nobody knows anything belongs to no tenant.
_QUEUE = text("""
    INSERT INTO outbox (organisation_id, topic, key)
    SELECT coalesce(
        (SELECT organisation_id FROM schedule_periods AS p WHERE p.monitor_id = wanted.id LIMIT 1),
        '00000000-0000-0000-0000-000000000000'
    ), :topic, wanted.id::text
    FROM unnest(CAST(:monitor_ids AS uuid[])) AS wanted (id)
""")
_RELAY_LOCK = text("SELECT pg_try_advisory_xact_lock(7226004)")


async def active_schedules(session: AsyncSession, monitor_ids: Collection[UUID]) -> list[ScheduleRow]:
    """The schedules of these monitors; one that is paused or gone has none and is left out."""
    rows = await session.execute(_ACTIVE, {"monitor_ids": list(monitor_ids)})
    return [ScheduleRow(*row) for row in rows]


async def active_revisions(session: AsyncSession) -> dict[UUID, int]:
    """The revision of all that is scheduled: monitors that are not paused, and jobs; for system sessions."""
    return {row[0]: row[1] for row in await session.execute(_REVISIONS)}


async def queue_schedules(session: AsyncSession, monitor_ids: Collection[UUID]) -> None:
    """Have the relay send these monitors' schedules again; for system sessions."""
    await session.execute(_QUEUE, {"topic": SCHEDULE_TOPIC, "monitor_ids": list(monitor_ids)})


async def take_relay_lock(session: AsyncSession) -> bool:
    """Whether this transaction is the one that relays; the lock is held until it ends."""
    return bool((await session.execute(_RELAY_LOCK)).scalar_one())
