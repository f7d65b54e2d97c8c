"""What the slot audit reads: when each monitor was due, and what is stored for it. For system sessions."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.domain.audit import Period, Place, Spans
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.result import SlotKey
from shared.domain.slots import Cadence

# Periods outlive their monitor, results of a monitor that is gone are not stored: its books are closed.
_PERIODS = text("""
    SELECT p.monitor_id, p.interval_ms, p.starts_at, p.regions, p.ends_at
    FROM schedule_periods AS p JOIN monitors AS m ON m.id = p.monitor_id
    WHERE p.ends_at IS NULL OR p.ends_at > :after
""")
_SPANS = """
    FROM check_results AS r
    JOIN unnest(CAST(:ids AS uuid[]), CAST(:after AS timestamptz[]), CAST(:until AS timestamptz[]))
        AS s (monitor_id, after, until) ON s.monitor_id = r.monitor_id
    WHERE r.scheduled_at > s.after AND r.scheduled_at <= s.until AND r.trigger = 'schedule'
        AND r.scheduled_at > :first AND r.scheduled_at <= :last
"""
_COUNTS = text(f"SELECT r.monitor_id, r.region, count(*) {_SPANS} GROUP BY 1, 2")
_KEYS = text(f"SELECT r.monitor_id, r.region, r.scheduled_at {_SPANS}")


async def periods_since(session: AsyncSession, after_ms: int) -> list[Period]:
    """Every period of an existing monitor that reaches beyond ``after_ms``."""
    rows = await session.execute(_PERIODS, {"after": to_datetime(after_ms)})
    return [
        Period(
            Cadence(row[0], row[1], to_milliseconds(row[2])),
            tuple(row[3]),
            None if row[4] is None else to_milliseconds(row[4]),
        )
        for row in rows
    ]


async def count_stored(session: AsyncSession, spans: Spans) -> dict[Place, int]:
    """How many scheduled results there are within the spans, per monitor and region."""
    return {(row[0], row[1]): row[2] for row in await session.execute(_COUNTS, _parameters(spans, spans.keys()))}


async def stored_keys(session: AsyncSession, spans: Spans, monitor_ids: Collection[UUID]) -> list[SlotKey]:
    """The slots of these monitors that have a result within their spans."""
    rows = await session.execute(_KEYS, _parameters(spans, monitor_ids))
    return [SlotKey(row[0], row[1], to_milliseconds(row[2])) for row in rows]


def _parameters(spans: Spans, monitor_ids: Collection[UUID]) -> dict[str, object]:
    chosen = [(monitor_id, spans[monitor_id]) for monitor_id in monitor_ids]
    return {
        "ids": [monitor_id for monitor_id, _ in chosen],
        "after": [to_datetime(span.after_ms) for _, span in chosen],
        "until": [to_datetime(span.until_ms) for _, span in chosen],
        # The same bounds once more as plain values: they keep the planner away from partitions outside of them.
        "first": to_datetime(min(span.after_ms for _, span in chosen)),
        "last": to_datetime(max(span.until_ms for _, span in chosen)),
    }
