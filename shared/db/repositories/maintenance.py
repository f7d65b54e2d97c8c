"""Maintenance windows and their planned spans: written by the owner of a window, read by whoever judges results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import MaintenanceWindow
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.recurrence import Span, merged

_SPANS = text("""
    SELECT m.id, o.starts_at, o.ends_at
    FROM maintenance_occurrences AS o
    JOIN monitors AS m ON m.organisation_id = o.organisation_id
        AND (o.all_monitors OR m.id = ANY(o.monitor_ids) OR (o.tags <> '{}' AND m.tags @> o.tags))
    WHERE m.id = ANY(CAST(:monitor_ids AS uuid[])) AND o.ends_at > :since AND o.starts_at < :until
""")
_PLAN = text("""
    INSERT INTO maintenance_occurrences
        (window_id, starts_at, ends_at, organisation_id, monitor_ids, tags, all_monitors)
    SELECT w.id, span.starts_at, span.ends_at, w.organisation_id, w.monitor_ids, w.tags, w.all_monitors
    FROM maintenance_windows AS w, unnest(
        CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[])
    ) AS span (starts_at, ends_at)
    WHERE w.id = :window_id
    ON CONFLICT (window_id, starts_at) DO NOTHING
""")
_DROP_FUTURE = text("""
    DELETE FROM maintenance_occurrences WHERE window_id = :window_id AND starts_at >= :now AND phase = 'planned'
""")
# One that another machine's clock has opened already has to be there for its end to be seen.
_END_PRESENT = text("""
    UPDATE maintenance_occurrences
    SET ends_at = greatest(CAST(:now AS timestamptz), starts_at + interval '1 millisecond')
    WHERE window_id = :window_id AND ends_at > :now
""")
_FORGET = text("DELETE FROM maintenance_occurrences WHERE phase = 'over' AND ends_at < :before")
# Marks on the occurrences and not a watermark: one that was committed late, or with the clock of another machine,
# is still found. Two sweeps take different rows. Most of the time no window is open, and no monitor is looked at.
_TURN = text("""
    WITH due AS MATERIALIZED (
        SELECT window_id, starts_at FROM maintenance_occurrences
        WHERE (phase = 'planned' AND starts_at <= :now) OR (phase = 'active' AND ends_at <= :now)
        FOR UPDATE SKIP LOCKED
    ), turned AS (
        UPDATE maintenance_occurrences AS o SET phase = CASE WHEN o.ends_at <= :now THEN 'over' ELSE 'active' END
        FROM due WHERE o.window_id = due.window_id AND o.starts_at = due.starts_at
        RETURNING o.*
    )
    SELECT m.id FROM monitors AS m JOIN turned AS o ON m.organisation_id = o.organisation_id
        AND (o.all_monitors OR m.id = ANY(o.monitor_ids) OR (o.tags <> '{}' AND m.tags @> o.tags))
    UNION
    SELECT m.id FROM monitors AS m
    WHERE EXISTS (SELECT FROM maintenance_occurrences WHERE phase = 'active')
        AND m.updated_at > CAST(:now AS timestamptz) - interval '10 seconds'
        AND m.organisation_id IN (SELECT organisation_id FROM maintenance_occurrences WHERE phase = 'active')
    ORDER BY 1
""")


async def spans_of(
    session: AsyncSession, monitor_ids: Collection[UUID], since: int, until: int
) -> dict[UUID, list[Span]]:
    """The maintenance of these monitors that overlaps ``[since, until)``, as spans that do not touch each other.

    Times are milliseconds. A monitor without any is left out; spans are whole, not cut to the range asked for.
    """
    bounds = {"since": to_datetime(since), "until": to_datetime(until)}
    found: dict[UUID, list[Span]] = {}
    for monitor_id, start, end in await session.execute(_SPANS, {"monitor_ids": list(monitor_ids), **bounds}):
        found.setdefault(monitor_id, []).append((to_milliseconds(start), to_milliseconds(end)))
    return {monitor_id: merged(spans) for monitor_id, spans in found.items()}


async def turn(session: AsyncSession, now: datetime) -> list[UUID]:
    """Mark what began or ended by now; answers the monitors to look at again, sorted. For system sessions.

    Monitors that were changed while a window of their organisation is open are among them: their tags decide.
    """
    return list((await session.execute(_TURN, {"now": now})).scalars())


async def stay(session: AsyncSession) -> None:
    """Keep a transaction that waits for others from being ended as idle."""
    await session.execute(text("SELECT 1"))


async def plan(session: AsyncSession, window_id: UUID, spans: Sequence[Span]) -> None:
    """Add spans to a window; those that it has already are left alone."""
    starts, ends = ([to_datetime(span[side]) for span in spans] for side in (0, 1))
    await session.execute(_PLAN, {"window_id": window_id, "starts": starts, "ends": ends})


async def cut(session: AsyncSession, window_id: UUID, now: datetime) -> None:
    """End what a window does now, and drop what it would do later; what is over stays."""
    values = {"window_id": window_id, "now": now}
    await session.execute(_DROP_FUTURE, values)
    await session.execute(_END_PRESENT, values)


async def forget(session: AsyncSession, before: datetime) -> None:
    """Remove spans that were over before; for system sessions."""
    await session.execute(_FORGET, {"before": before})


async def list_windows(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[MaintenanceWindow]:
    """Windows in the order of their creation, from behind ``after``."""
    query = select(MaintenanceWindow).order_by(MaintenanceWindow.id).limit(limit)
    if after is not None:
        query = query.where(MaintenanceWindow.id > after)
    return (await session.execute(query)).scalars().all()


async def living_windows(session: AsyncSession, now: datetime) -> Sequence[MaintenanceWindow]:
    """The windows of all tenants that may open from now on, locked against changes; for system sessions."""
    query = (
        select(MaintenanceWindow)
        .where(or_(MaintenanceWindow.schedule.is_not(None), MaintenanceWindow.ends_at > now))
        .order_by(MaintenanceWindow.id)
        .with_for_update()
    )
    return (await session.execute(query)).scalars().all()


async def get_window(session: AsyncSession, window_id: UUID, *, lock: bool = False) -> MaintenanceWindow | None:
    return await session.get(MaintenanceWindow, window_id, with_for_update=lock or None)


async def unknown_monitors(session: AsyncSession, monitor_ids: Collection[UUID]) -> set[UUID]:
    """Which of these ids are no monitors of the tenant."""
    found = await session.execute(_KNOWN, {"monitor_ids": list(monitor_ids)})
    return set(monitor_ids) - set(found.scalars())


_KNOWN = text("SELECT id FROM monitors WHERE id = ANY(CAST(:monitor_ids AS uuid[]))")
