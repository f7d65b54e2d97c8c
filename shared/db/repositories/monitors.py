"""Monitors as their organisation sees them. Row-level security adds the tenant to every query here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, Text, cast, delete, func, or_, select, text
from sqlalchemy.dialects.postgresql import JSONPATH
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import TENANT_SETTING
from shared.db.models import Heartbeat, Monitor, MonitorState, SchedulePeriod

# The ways from these monitors over their parents, and theirs, as far as they go.
_ANCESTRY = text("""
    WITH RECURSIVE ancestry AS (
        SELECT id, parents FROM monitors WHERE id = ANY(CAST(:ids AS uuid[]))
        UNION
        SELECT m.id, m.parents FROM ancestry AS a JOIN monitors AS m ON m.id = ANY(a.parents)
    )
    SELECT id, parents FROM ancestry
""")
# Two changes at once could each close one half of a circle: they go one after the other.
_LOCK_PARENTS = text("SELECT pg_advisory_xact_lock(hashtextextended('parents ' || current_setting(:setting), 0))")


@dataclass(frozen=True, slots=True)
class MonitorFilter:
    """Which monitors to list; None means any. ``tag`` is ``name`` or ``name:value``, ``text`` part of the name."""

    status: str | None = None
    kind: str | None = None
    tag: str | None = None
    text: str | None = None


MonitorView = Row[*tuple[Any, ...]]
"""Columns of a monitor, of its state, and ``starts_at`` of its open period; ``last_result`` is JSON text."""


def _view() -> Select[*tuple[Any, ...]]:
    return (
        select(
            Monitor.id,
            Monitor.name,
            Monitor.kind,
            Monitor.interval_seconds,
            Monitor.timeout_seconds,
            Monitor.regions,
            Monitor.tags,
            Monitor.retries,
            Monitor.retry_delay_seconds,
            Monitor.failure_threshold,
            Monitor.recovery_threshold,
            Monitor.region_quorum,
            Monitor.flap_window_seconds,
            Monitor.parents,
            Monitor.check_spec,
            Monitor.revision,
            Monitor.paused_at,
            Monitor.created_at,
            Monitor.updated_at,
            func.coalesce(MonitorState.overlay, MonitorState.status).label("status"),
            func.coalesce(MonitorState.overlay_since, MonitorState.status_since).label("status_since"),
            cast(MonitorState.last_result, Text).label("last_result"),
            SchedulePeriod.starts_at,
            Heartbeat.token.label("ping_token"),
            Heartbeat.next_deadline_at,
        )
        .join(MonitorState, MonitorState.monitor_id == Monitor.id)
        .outerjoin(Heartbeat, Heartbeat.monitor_id == Monitor.id)
        .outerjoin(SchedulePeriod, (SchedulePeriod.monitor_id == Monitor.id) & SchedulePeriod.ends_at.is_(None))
    )


async def get_view(session: AsyncSession, monitor_id: UUID) -> MonitorView | None:
    return (await session.execute(_view().where(Monitor.id == monitor_id))).one_or_none()


async def list_views(
    session: AsyncSession, wanted: MonitorFilter, *, after: UUID | None, limit: int
) -> Sequence[MonitorView]:
    """Monitors in the order of their creation, from behind ``after``."""
    query = _filtered(_view(), wanted).order_by(Monitor.id).limit(limit)
    if after is not None:
        query = query.where(Monitor.id > after)
    return (await session.execute(query)).all()


def _filtered(query: Select[*tuple[Any, ...]], wanted: MonitorFilter) -> Select[*tuple[Any, ...]]:
    if wanted.status is not None:
        query = query.where(func.coalesce(MonitorState.overlay, MonitorState.status) == wanted.status)
    if wanted.kind is not None:
        query = query.where(Monitor.kind == wanted.kind)
    if wanted.tag is not None:
        name, colon, value = wanted.tag.partition(":")
        query = query.where(Monitor.tags.contains({name: value}) if colon else Monitor.tags.has_key(name))
    if wanted.text is not None:
        urls = func.jsonb_path_query_array(Monitor.check_spec, cast("$.steps[*].url", JSONPATH))
        steps = func.nullif(cast(urls, Text), "[]")
        targets = (Monitor.name, Monitor.check_spec["url"].astext, Monitor.check_spec["host"].astext, steps)
        query = query.where(or_(*(func.lower(t).contains(wanted.text.lower(), autoescape=True) for t in targets)))
    return query


async def lock(session: AsyncSession, monitor_id: UUID) -> Monitor | None:
    """The monitor, locked until the transaction ends: changes of one monitor happen one after the other."""
    return await session.get(Monitor, monitor_id, with_for_update=True)


async def remove(session: AsyncSession, monitor_id: UUID) -> None:
    """Delete a monitor with its state; its periods and results stay for the audit, until retention."""
    await session.execute(delete(Monitor).where(Monitor.id == monitor_id))


async def lock_parents(session: AsyncSession) -> None:
    """Let nobody else change who depends on whom in this organisation until the transaction ends.

    Taken before any monitor is locked: who has it may lock any of them.
    """
    await session.execute(_LOCK_PARENTS, {"setting": TENANT_SETTING})


async def ancestry(session: AsyncSession, monitor_ids: Sequence[UUID]) -> dict[UUID, list[UUID]]:
    """The parents of these monitors, of their parents, and so on; ids of no monitor of the tenant are left out."""
    return {row[0]: row[1] for row in await session.execute(_ANCESTRY, {"ids": list(monitor_ids)})}


async def children(session: AsyncSession, monitor_id: UUID) -> Sequence[Monitor]:
    """The monitors that name this one as a parent, locked."""
    query = select(Monitor).where(Monitor.parents.contains([monitor_id])).order_by(Monitor.id).with_for_update()
    return (await session.execute(query)).scalars().all()


async def open_period(session: AsyncSession, monitor_id: UUID) -> SchedulePeriod | None:
    """The span of the present cadence; None while the monitor is paused."""
    query = select(SchedulePeriod).where(SchedulePeriod.monitor_id == monitor_id, SchedulePeriod.ends_at.is_(None))
    return (await session.execute(query)).scalar_one_or_none()
