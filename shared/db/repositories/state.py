"""Where each monitor stands: read and written by the recorder under one lock per row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.state import FRESH_INTERVALS, MonitorState, MonitorStatus, RegionState, Rules, Thresholds

BLIND_GRACE_SECONDS = 10
"""How long a verdict may be under way between the worker and its row before it counts as missing."""


@dataclass(frozen=True, slots=True)
class StateRow:
    """A locked state with what its monitor says about judging it.

    ``last_result`` is only written: a JSON object as text, or None to keep the stored one.
    """

    monitor_id: UUID
    organisation_id: UUID
    revision: int
    rules: Rules
    state: MonitorState
    flap_window_ms: int = 0
    has_parents: bool = False
    last_result: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A monitor shows another status from a moment on, in milliseconds."""

    organisation_id: UUID
    monitor_id: UUID
    status: MonitorStatus
    at_ms: int


# Only the state is locked: a person who edits the monitor does not wait for results, nor they for that person.
_LOCK = text("""
    SELECT s.monitor_id, s.organisation_id, m.revision, m.failure_threshold, m.recovery_threshold, m.regions,
        m.region_quorum, m.interval_seconds, m.flap_window_seconds, m.parents <> '{}' AS has_parents,
        s.status, s.status_since, s.regions::text AS region_states, s.announced, s.overlay, s.overlay_since
    FROM monitor_state AS s JOIN monitors AS m ON m.id = s.monitor_id
    WHERE s.monitor_id = ANY(CAST(:monitor_ids AS uuid[]))
    ORDER BY s.monitor_id
    FOR UPDATE OF s
""")
_SAVE = text("""
    UPDATE monitor_state AS s SET status = u.status, status_since = u.status_since, last_slot_at = u.last_slot_at,
        consecutive_failures = u.failures, consecutive_successes = u.successes, regions = u.regions::jsonb,
        announced = u.announced, overlay = u.overlay, overlay_since = u.overlay_since,
        last_result = coalesce(u.last_result::jsonb, s.last_result), updated_at = now()
    FROM unnest(
        CAST(:monitor_ids AS uuid[]), CAST(:statuses AS text[]), CAST(:since AS timestamptz[]),
        CAST(:slots AS timestamptz[]), CAST(:failures AS bigint[]), CAST(:successes AS bigint[]),
        CAST(:regions AS text[]), CAST(:announced AS text[]), CAST(:overlays AS text[]),
        CAST(:overlays_since AS timestamptz[]), CAST(:last_results AS text[])
    ) AS u (monitor_id, status, status_since, last_slot_at, failures, successes, regions, announced, overlay,
        overlay_since, last_result)
    WHERE s.monitor_id = u.monitor_id
""")
# A span begins where the one before it ended. What is inserted reads what was closed: the order is certain.
_TURN = text("""
    WITH turned AS (
        SELECT * FROM unnest(
            CAST(:monitor_ids AS uuid[]), CAST(:organisation_ids AS uuid[]), CAST(:statuses AS text[]),
            CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[])
        ) AS t (monitor_id, organisation_id, status, starts_at, ends_at)
    ), closed AS (
        UPDATE state_periods AS p SET ends_at = greatest(p.starts_at, t.at)
        FROM (SELECT monitor_id, min(starts_at) AS at FROM turned GROUP BY 1) AS t
        WHERE p.monitor_id = t.monitor_id AND p.ends_at IS NULL
        RETURNING p.monitor_id, p.ends_at
    )
    INSERT INTO state_periods (organisation_id, monitor_id, status, starts_at, ends_at)
    SELECT t.organisation_id, t.monitor_id, t.status, greatest(c.ends_at, t.starts_at),
        CASE WHEN t.ends_at IS NOT NULL THEN greatest(c.ends_at, t.starts_at, t.ends_at) END
    FROM turned AS t LEFT JOIN closed AS c ON c.monitor_id = t.monitor_id
""")
_LAST_RESULTS = text("""
    SELECT monitor_id, last_result::text FROM monitor_state
    WHERE monitor_id = ANY(CAST(:monitor_ids AS uuid[])) AND last_result IS NOT NULL
""")
_CLOSE = text("""
    UPDATE state_periods SET ends_at = greatest(starts_at, CAST(:at AS timestamptz))
    WHERE monitor_id = :monitor_id AND ends_at IS NULL
""")
# Rows that a recorder holds are being judged this moment: they are not blind, and nobody waits for them.
_MARK_BLIND = text("""
    WITH blind AS MATERIALIZED (
        SELECT s.monitor_id, coalesce(
                s.last_slot_at + m.interval_seconds * interval '1 second', p.starts_at) AS since
        FROM monitor_state AS s
        JOIN monitors AS m ON m.id = s.monitor_id
        JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
        WHERE s.status <> 'unknown' AND m.kind <> 'heartbeat' AND greatest(p.starts_at, s.last_slot_at)
            < CAST(:now AS timestamptz) - (:intervals * m.interval_seconds + :grace) * interval '1 second'
        FOR UPDATE OF s SKIP LOCKED
    ), marked AS (
        UPDATE monitor_state AS s SET status = 'unknown', status_since = greatest(s.status_since, b.since),
            updated_at = now()
        FROM blind AS b WHERE s.monitor_id = b.monitor_id
        RETURNING s.monitor_id, s.organisation_id, s.overlay, s.status_since
    ), closed AS (
        UPDATE state_periods AS p SET ends_at = greatest(p.starts_at, s.status_since)
        FROM marked AS s WHERE p.monitor_id = s.monitor_id AND p.ends_at IS NULL AND s.overlay IS NULL
        RETURNING p.organisation_id, p.monitor_id, p.ends_at
    ), told AS (
        INSERT INTO state_periods (organisation_id, monitor_id, status, starts_at)
        SELECT organisation_id, monitor_id, 'unknown', ends_at FROM closed
    )
    SELECT count(*) FROM marked
""")

_regions = msgspec.json.Decoder(dict[str, RegionState])
_encode = msgspec.json.Encoder().encode


async def lock_states(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, StateRow]:
    """Lock the states of these monitors, in the order of their ids; monitors that are gone are left out."""
    rows = await session.execute(_LOCK, {"monitor_ids": list(monitor_ids)})
    return {row[0]: _state_row(row) for row in rows}


def _state_row(row: Row[*tuple[Any, ...]]) -> StateRow:
    # Unpacked by place: by name it takes twice as long, and this is done for every result.
    monitor_id, organisation_id, revision, failure, recovery, regions, quorum, interval, *rest = row
    flap_window, has_parents, status, since, region_states, announced, overlay, overlay_since = rest
    return StateRow(
        monitor_id,
        organisation_id,
        revision,
        Rules(Thresholds(failure, recovery), tuple(regions), quorum, interval * 1000),
        MonitorState(
            MonitorStatus(status),
            to_milliseconds(since),
            _regions.decode(region_states),
            MonitorStatus(announced),
            MonitorStatus(overlay) if overlay else None,
            to_milliseconds(overlay_since) if overlay_since else None,
        ),
        flap_window * 1000,
        has_parents,
    )


async def save_states(session: AsyncSession, rows: Sequence[StateRow]) -> None:
    """Write locked states in one statement; each monitor at most once."""
    states = [row.state for row in rows]
    slots = [state.last_slot_ms for state in states]
    await session.execute(
        _SAVE,
        {
            "monitor_ids": [row.monitor_id for row in rows],
            "statuses": [state.status.value for state in states],
            "since": [to_datetime(state.status_since_ms) for state in states],
            "slots": [None if slot < 0 else to_datetime(slot) for slot in slots],
            "failures": [state.consecutive_failures for state in states],
            "successes": [state.consecutive_successes for state in states],
            "regions": [_encode(state.regions).decode() for state in states],
            "announced": [state.announced.value for state in states],
            "overlays": [state.overlay and state.overlay.value for state in states],
            "overlays_since": [_moment(state.overlay_since_ms) for state in states],
            "last_results": [row.last_result for row in rows],
        },
    )


async def write_turns(session: AsyncSession, turns: Sequence[Turn]) -> None:
    """Continue the histories of monitors in one statement; those of one monitor in order of time."""
    following: dict[UUID, int] = {}
    ends: list[int | None] = []
    for turn in reversed(turns):
        ends.append(following.get(turn.monitor_id))
        following[turn.monitor_id] = turn.at_ms
    await session.execute(
        _TURN,
        {
            "monitor_ids": [turn.monitor_id for turn in turns],
            "organisation_ids": [turn.organisation_id for turn in turns],
            "statuses": [turn.status.value for turn in turns],
            "starts": [to_datetime(turn.at_ms) for turn in turns],
            "ends": [_moment(end) for end in reversed(ends)],
        },
    )


async def last_results(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, str]:
    """The last result of each of these monitors as JSON text; those without any are left out."""
    rows = await session.execute(_LAST_RESULTS, {"monitor_ids": list(monitor_ids)})
    return {row[0]: row[1] for row in rows}


async def close_history(session: AsyncSession, monitor_id: UUID, at: datetime) -> None:
    """End the history of a monitor that is being deleted."""
    await session.execute(_CLOSE, {"monitor_id": monitor_id, "at": at})


async def mark_blind(session: AsyncSession, now_ms: int) -> int:
    """Turn monitors unknown that had no verdict for three intervals; answers how many. For system sessions.

    They are unknown from the first slot on that brought no verdict. Incidents stay as they are.
    """
    limits = {"intervals": FRESH_INTERVALS, "grace": BLIND_GRACE_SECONDS}
    return int((await session.execute(_MARK_BLIND, {"now": to_datetime(now_ms), **limits})).scalar_one())


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else to_datetime(at_ms)
