"""Incidents as alerting sees them: what has changed, what is due, and how far each has come. For system sessions.

Rows that somebody else holds (the recorder, another relay) are skipped, never waited for: they are found again at
the next look, a moment later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories.outbox import INCIDENT_TOPIC


@dataclass(frozen=True, slots=True)
class Transition:
    """A row of the outbox. ``kind`` is opened, reopened, acknowledged or resolved."""

    outbox_id: int
    organisation_id: UUID
    incident_id: UUID
    kind: str
    event_id: int


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """A locked incident with its monitor."""

    id: UUID
    organisation_id: UUID
    kind: str
    state: str
    severity: str
    cause: str
    message: str
    started_at: datetime
    opened_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None
    resolved_by: str | None
    affected_by: UUID | None
    silent: bool
    first_result: dict[str, Any] | None
    last_result: dict[str, Any] | None
    policy_id: UUID | None
    next_step: int
    reminders: int
    monitor_id: UUID | None
    monitor_name: str | None
    monitor_kind: str | None
    check_spec: dict[str, Any] | None
    tags: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Opening:
    """The opening that a transition belongs to.

    ``episode`` is the first one since the incident was last resolved: an incident that gets worse is opened again.
    """

    event_id: int
    at: datetime
    episode: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What is remembered of an escalation."""

    incident_id: UUID
    policy_id: UUID | None
    next_step: int
    reminders: int
    next_alert_at: datetime | None


# An incident's changes are taken in their order, one at a time. The key of another topic need not be a UUID, and
# PostgreSQL may look at it before it looks at the topic.
_TRANSITIONS = text("""
    SELECT o.id, o.organisation_id, CAST(o.key AS uuid), o.payload ->> 'transition', o.payload ->> 'event_id'
    FROM outbox AS o
    LEFT JOIN incidents AS i ON i.id = CASE WHEN o.topic = :topic THEN CAST(o.key AS uuid) END
    WHERE o.topic = :topic AND (i.id IS NULL OR coalesce(i.alert_not_before <= :now, true))
      AND o.id <> ALL(CAST(:passed_by AS bigint[]))
      AND NOT EXISTS (SELECT FROM outbox AS p WHERE p.topic = :topic AND p.key = o.key AND p.id < o.id)
    ORDER BY o.id LIMIT :limit
    FOR UPDATE OF o SKIP LOCKED
""")
_COLUMNS = """
    i.id, i.organisation_id, i.kind, i.state, i.severity, i.cause, i.message, i.started_at, i.opened_at,
    i.acknowledged_at, i.acknowledged_by, i.resolved_at, i.resolved_by, i.affected_by, i.silent, i.first_result,
    i.last_result, i.policy_id, i.next_step, i.reminders, m.id, m.name, m.kind, m.check_spec, m.tags
    FROM incidents AS i LEFT JOIN monitors AS m ON m.id = i.monitor_id
"""
_LOCK = text(f"""
    SELECT {_COLUMNS} WHERE i.id = ANY(CAST(:incident_ids AS uuid[])) ORDER BY i.id FOR UPDATE OF i SKIP LOCKED
""")
_DUE = text(f"""
    SELECT {_COLUMNS} WHERE i.next_alert_at <= :now AND i.id <> ALL(CAST(:passed_by AS uuid[]))
    ORDER BY i.next_alert_at LIMIT :limit
    FOR UPDATE OF i SKIP LOCKED
""")
_GONE = text("""
    SELECT wanted FROM unnest(CAST(:incident_ids AS uuid[])) AS wanted
    WHERE NOT EXISTS (SELECT FROM incidents AS i WHERE i.id = wanted)
""")
# An event that people hear of names the transition that it tells.
_OPENINGS = text("""
    SELECT u.incident_id, opening.id, opening.at, (
        SELECT min(e.id) FROM incident_events AS e
        WHERE e.incident_id = u.incident_id AND e.detail ->> 'tell' IN ('opened', 'reopened') AND e.id > coalesce((
            SELECT max(r.id) FROM incident_events AS r
            WHERE r.incident_id = u.incident_id AND r.detail ->> 'tell' = 'resolved' AND r.id < u.event_id
        ), 0)
    )
    FROM unnest(CAST(:incident_ids AS uuid[]), CAST(:event_ids AS bigint[])) AS u (incident_id, event_id)
    JOIN LATERAL (
        SELECT e.id, e.at FROM incident_events AS e
        WHERE e.incident_id = u.incident_id AND e.id <= u.event_id AND e.detail ->> 'tell' IN ('opened', 'reopened')
        ORDER BY e.id DESC LIMIT 1
    ) AS opening ON true
""")
_SAVE = text("""
    UPDATE incidents AS i SET policy_id = u.policy_id, next_step = u.next_step, reminders = u.reminders,
        next_alert_at = u.next_alert_at
    FROM unnest(
        CAST(:incident_ids AS uuid[]), CAST(:policy_ids AS uuid[]), CAST(:steps AS bigint[]),
        CAST(:reminders AS bigint[]), CAST(:moments AS timestamptz[])
    ) AS u (incident_id, policy_id, next_step, reminders, next_alert_at)
    WHERE i.id = u.incident_id
""")
_LOCK_KEY = text("SELECT pg_advisory_xact_lock(hashtext(:key))")
_PLATFORM_ALERT = text("""
    SELECT id FROM incidents WHERE kind = 'platform' AND state <> 'resolved' AND region = '' AND worker = :key
""")
_TOUCH_ALERT = text("UPDATE incidents SET last_failure_at = :now WHERE id = :id")
_STALE_ALERTS = text("""
    SELECT worker FROM incidents
    WHERE kind = 'platform' AND state <> 'resolved' AND region = '' AND cause = :cause AND last_failure_at < :before
""")
_LATEST = 2**62


async def take_transitions(
    session: AsyncSession, now: datetime, limit: int, passed_by: Collection[int] = ()
) -> list[Transition]:
    """Lock changes that may be told of by now: at most one per incident, the oldest. Some are passed by."""
    values = {"topic": INCIDENT_TOPIC, "now": now, "limit": limit, "passed_by": list(passed_by)}
    rows = await session.execute(_TRANSITIONS, values)
    return [Transition(row[0], row[1], row[2], row[3], int(row[4])) for row in rows]


async def lock_incidents(session: AsyncSession, incident_ids: Collection[UUID]) -> dict[UUID, IncidentRow]:
    """Those of the incidents that exist and that nobody else holds."""
    rows = await session.execute(_LOCK, {"incident_ids": list(incident_ids)})
    return {row[0]: IncidentRow(*row) for row in rows}


async def due_incidents(
    session: AsyncSession, now: datetime, limit: int, passed_by: Collection[UUID] = ()
) -> dict[UUID, IncidentRow]:
    """Lock incidents whose next step or reminder is due. Some are passed by."""
    rows = await session.execute(_DUE, {"now": now, "limit": limit, "passed_by": list(passed_by)})
    return {row[0]: IncidentRow(*row) for row in rows}


async def gone(session: AsyncSession, incident_ids: Collection[UUID]) -> set[UUID]:
    """Those that do not exist any more."""
    return set((await session.execute(_GONE, {"incident_ids": list(incident_ids)})).scalars())


async def openings(session: AsyncSession, until: Collection[tuple[UUID, int | None]]) -> dict[UUID, Opening]:
    """The last opening of each incident up to an event (None: of all)."""
    values = {
        "incident_ids": [incident_id for incident_id, _ in until],
        "event_ids": [_LATEST if event_id is None else event_id for _, event_id in until],
    }
    return {row[0]: Opening(row[1], row[2], row[3]) for row in await session.execute(_OPENINGS, values)}


async def save_progress(session: AsyncSession, rows: Sequence[Progress]) -> None:
    """Write how far locked incidents have come; each at most once."""
    values = {
        "incident_ids": [row.incident_id for row in rows],
        "policy_ids": [row.policy_id for row in rows],
        "steps": [row.next_step for row in rows],
        "reminders": [row.reminders for row in rows],
        "moments": [row.next_alert_at for row in rows],
    }
    await session.execute(_SAVE, values)


async def lock_platform_alert(session: AsyncSession, key: str) -> UUID | None:
    """The open alert of the platform under this key, if there is one; holds a lock on the answer."""
    await session.execute(_LOCK_KEY, {"key": f"platform alert {key}"})
    found: UUID | None = (await session.execute(_PLATFORM_ALERT, {"key": key})).scalar_one_or_none()
    return found


async def touch_platform_alert(session: AsyncSession, incident_id: UUID, now: datetime) -> None:
    """Note that the trouble is still seen."""
    await session.execute(_TOUCH_ALERT, {"id": incident_id, "now": now})


async def stale_platform_alerts(session: AsyncSession, cause: str, before: datetime) -> list[str]:
    """The keys of open alerts whose trouble nobody has seen since ``before``."""
    return list((await session.execute(_STALE_ALERTS, {"cause": cause, "before": before})).scalars())
