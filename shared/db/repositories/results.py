"""Results in and out of their daily partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Text, cast, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import CheckResult
from shared.domain.clock import to_milliseconds
from shared.domain.result import SlotKey


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result as it is stored; ``detail`` is a JSON object as text."""

    monitor_id: UUID
    region: str
    scheduled_at: datetime
    started_at: datetime | None
    revision: int
    status: str
    attempts: int
    error_kind: str | None
    error_message: str | None
    total_ms: float | None
    trigger: str
    detail: str


# The tenant is the monitor's, never the message's. Sorted by key, so that two writers cannot deadlock.
_STORE = text("""
    INSERT INTO check_results AS stored (monitor_id, scheduled_at, region, organisation_id, started_at, revision,
        status, attempts, error_kind, error_message, total_ms, trigger, detail)
    SELECT r.monitor_id, r.scheduled_at, r.region, m.organisation_id, r.started_at, r.revision,
        r.status, r.attempts, r.error_kind, r.error_message, r.total_ms, r.trigger, r.detail::jsonb
    FROM unnest(
        CAST(:monitor_id AS uuid[]), CAST(:scheduled_at AS timestamptz[]), CAST(:region AS text[]),
        CAST(:started_at AS timestamptz[]), CAST(:revision AS bigint[]), CAST(:status AS text[]),
        CAST(:attempts AS bigint[]), CAST(:error_kind AS text[]), CAST(:error_message AS text[]),
        CAST(:total_ms AS float8[]), CAST(:trigger AS text[]), CAST(:detail AS text[])
    ) AS r (monitor_id, scheduled_at, region, started_at, revision, status, attempts, error_kind, error_message,
        total_ms, trigger, detail)
    JOIN monitors AS m ON m.id = r.monitor_id
    ORDER BY r.monitor_id, r.scheduled_at, r.region
    ON CONFLICT (monitor_id, scheduled_at, region) DO UPDATE SET
        started_at = excluded.started_at, revision = excluded.revision, status = excluded.status,
        attempts = excluded.attempts, error_kind = excluded.error_kind, error_message = excluded.error_message,
        total_ms = excluded.total_ms, trigger = excluded.trigger, detail = excluded.detail,
        stored_at = excluded.stored_at
    WHERE stored.status = 'missed' AND excluded.status <> 'missed'
    RETURNING monitor_id, region, scheduled_at
""")
_COLUMNS = tuple(ResultRow.__slots__)
_ENSURE_PARTITIONS = text(
    "SELECT coalesce(sum(tocsin_ensure_partitions(day, day)), 0) FROM unnest(CAST(:days AS date[])) AS day"
)
_DROP_PARTITIONS = text("SELECT tocsin_drop_partitions(:before)")


async def store_results(session: AsyncSession, rows: Sequence[ResultRow]) -> set[SlotKey]:
    """Store results, at most one per slot, in one statement and return the keys that were written.

    A slot that is stored already keeps its result, except that a real one replaces a ``missed`` one. Rows of
    unknown monitors are skipped. A day without a partition raises ``IntegrityError``: see ``ensure_partitions``.
    """
    columns = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
    written = await session.execute(_STORE, columns)
    return {SlotKey(row[0], row[1], to_milliseconds(row[2])) for row in written}


async def ensure_partitions(session: AsyncSession, days: Iterable[date]) -> int:
    """Create the missing daily partitions (UTC) and return how many there were; for system sessions."""
    return int((await session.execute(_ENSURE_PARTITIONS, {"days": sorted(set(days))})).scalar_one())


async def drop_partitions(session: AsyncSession, before: date) -> int:
    """Drop all days before this one (UTC) and return how many there were; for system sessions."""
    return int((await session.execute(_DROP_PARTITIONS, {"before": before})).scalar_one())


async def list_results(
    session: AsyncSession,
    monitor_id: UUID,
    *,
    since: datetime | None,
    until: datetime | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Results newest first, in ``[since, until)``; ``before`` is the (scheduled_at, region) the last page ended on.

    ``detail`` comes as JSON text: it is passed on to the client as it is.
    """
    table = CheckResult
    query = (
        select(
            table.monitor_id,
            table.region,
            table.scheduled_at,
            table.started_at,
            table.revision,
            table.status,
            table.attempts,
            table.error_kind,
            table.error_message,
            table.trigger,
            cast(table.detail, Text).label("detail"),
        )
        .where(table.monitor_id == monitor_id)
        .order_by(table.scheduled_at.desc(), table.region.desc())
        .limit(limit)
    )
    if since is not None:
        query = query.where(table.scheduled_at >= since)
    if until is not None:
        query = query.where(table.scheduled_at < until)
    if before is not None:
        query = query.where(tuple_(table.scheduled_at, table.region) < before)
    return (await session.execute(query)).all()
