"""Where each monitor stands: read and written by the recorder under one lock per row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.state import MonitorState, MonitorStatus, Thresholds


@dataclass(frozen=True, slots=True)
class StateRow:
    """A locked state with what its monitor says about judging it.

    ``last_result`` is only written: a JSON object as text, or None to keep the stored one.
    """

    monitor_id: UUID
    organisation_id: UUID
    revision: int
    paused: bool
    thresholds: Thresholds
    state: MonitorState
    last_result: str | None = None

    def advanced(self, state: MonitorState, last_result: str) -> StateRow:
        return replace(self, state=state, last_result=last_result)


# Only the state is locked: a person who edits the monitor does not wait for results, nor they for that person.
_LOCK = text("""
    SELECT s.monitor_id, s.organisation_id, m.revision, m.paused_at IS NOT NULL AS paused, m.failure_threshold,
        m.recovery_threshold, s.status, s.status_since, s.last_slot_at, s.consecutive_failures,
        s.consecutive_successes
    FROM monitor_state AS s JOIN monitors AS m ON m.id = s.monitor_id
    WHERE s.monitor_id = ANY(CAST(:monitor_ids AS uuid[]))
    ORDER BY s.monitor_id
    FOR UPDATE OF s
""")
_SAVE = text("""
    UPDATE monitor_state AS s SET status = u.status, status_since = u.status_since, last_slot_at = u.last_slot_at,
        consecutive_failures = u.failures, consecutive_successes = u.successes,
        last_result = coalesce(u.last_result::jsonb, s.last_result), updated_at = now()
    FROM unnest(
        CAST(:monitor_ids AS uuid[]), CAST(:statuses AS text[]), CAST(:since AS timestamptz[]),
        CAST(:slots AS timestamptz[]), CAST(:failures AS bigint[]), CAST(:successes AS bigint[]),
        CAST(:last_results AS text[])
    ) AS u (monitor_id, status, status_since, last_slot_at, failures, successes, last_result)
    WHERE s.monitor_id = u.monitor_id
""")


async def lock_states(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, StateRow]:
    """Lock the states of these monitors, in the order of their ids; monitors that are gone are left out."""
    rows = await session.execute(_LOCK, {"monitor_ids": list(monitor_ids)})
    return {row[0]: _state_row(row) for row in rows}


def _state_row(row: Row[*tuple[Any, ...]]) -> StateRow:
    monitor_id, organisation_id, revision, paused, failure, recovery, *state = row
    return StateRow(monitor_id, organisation_id, revision, paused, Thresholds(failure, recovery), _state(*state))


def _state(status: str, since: datetime, slot: datetime | None, failures: int, successes: int) -> MonitorState:
    slot_ms = -1 if slot is None else to_milliseconds(slot)
    return MonitorState(MonitorStatus(status), to_milliseconds(since), slot_ms, failures, successes)


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
            "last_results": [row.last_result for row in rows],
        },
    )
