"""Incidents and their timeline. Whoever changes an incident of a monitor holds the lock on the monitor's state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, Text, cast, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import encode
from shared.db.models import Incident as IncidentRow
from shared.db.models import IncidentEvent, Monitor
from shared.db.repositories.outbox import INCIDENT_TOPIC
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.incident import Event, Incident, IncidentKind, IncidentState, Severity

_MOMENTS = frozenset(
    {
        "started_at_ms",
        "opened_at_ms",
        "last_failure_at_ms",
        "acknowledged_at_ms",
        "resolved_at_ms",
        "alert_not_before_ms",
    }
)
_FIELDS = tuple(
    name
    for name in Incident.__dataclass_fields__
    if name not in ("explained_until_ms", "first_result", "last_result")
)
COLUMNS = tuple(name.removesuffix("_ms") for name in _FIELDS)
_TYPES = {
    **dict.fromkeys(("id", "organisation_id", "monitor_id", "affected_by"), "uuid"),
    **dict.fromkeys((name.removesuffix("_ms") for name in _MOMENTS), "timestamptz"),
    **dict.fromkeys(("silent", "held"), "boolean"),
    **dict.fromkeys(("reopened", "expiry_warning"), "bigint"),
}
# An open incident is the newest of its monitor: only the newest is ever opened again.
_LATEST = text(f"""
    SELECT {", ".join(f"i.{name}" for name in COLUMNS)},
        (SELECT e.resolved_at FROM incidents AS e WHERE e.id = i.affected_by) AS explained_until
    FROM unnest(CAST(:monitor_ids AS uuid[])) AS u (monitor_id)
    JOIN LATERAL (
        SELECT * FROM incidents AS n WHERE n.monitor_id = u.monitor_id ORDER BY n.id DESC LIMIT 1 FOR UPDATE
    ) AS i ON true
""")  # noqa: S608 names of columns, from this module
_SAVE = text(f"""
    INSERT INTO incidents AS i ({", ".join(COLUMNS)}, first_result, last_result)
    SELECT {", ".join(f"u.{name}" for name in COLUMNS)}, u.first_result::jsonb, u.last_result::jsonb
    FROM unnest(
        {", ".join(f"CAST(:{name} AS {_TYPES.get(name, 'text')}[])" for name in COLUMNS)},
        CAST(:first_result AS text[]), CAST(:last_result AS text[])
    ) AS u ({", ".join(COLUMNS)}, first_result, last_result)
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])},
        last_result = coalesce(excluded.last_result, i.last_result)
""")  # noqa: S608 names of columns, from this module
# What is to be told goes out in the transaction that makes it true, with the number of its event.
_EVENTS = text("""
    WITH written AS (
        INSERT INTO incident_events (organisation_id, incident_id, at, kind, actor, detail)
        SELECT u.organisation_id, u.incident_id, u.at, u.kind, u.actor, u.detail::jsonb
        FROM unnest(
            CAST(:organisation_ids AS uuid[]), CAST(:incident_ids AS uuid[]), CAST(:moments AS timestamptz[]),
            CAST(:kinds AS text[]), CAST(:actors AS text[]), CAST(:details AS text[])
        ) WITH ORDINALITY AS u (organisation_id, incident_id, at, kind, actor, detail, place)
        ORDER BY u.place
        RETURNING id, organisation_id, incident_id, detail->>'tell' AS tell
    )
    INSERT INTO outbox (organisation_id, topic, key, payload)
    SELECT organisation_id, :topic, incident_id, jsonb_build_object('transition', tell, 'event_id', id)
    FROM written WHERE tell IS NOT NULL ORDER BY id
""")
# In two parts, for which there is an index each: of years of incidents few are not over.
_UNRESOLVED = text("""
    SELECT id FROM incidents WHERE state <> 'resolved' AND kind = 'monitor'
    UNION ALL SELECT id FROM incidents WHERE state <> 'resolved' AND kind = 'platform'
""").columns(IncidentRow.id)
_COUNT_OPEN = text("""
    SELECT (SELECT count(*) FROM incidents WHERE state <> 'resolved' AND kind = 'monitor')
        + (SELECT count(*) FROM incidents WHERE state <> 'resolved' AND kind = 'platform')
""")
_MONITOR_OF = text("SELECT monitor_id FROM incidents WHERE id = :id")

IncidentView = Row[*tuple[Any, ...]]


async def latest(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, Incident]:
    """The newest incident of each of these monitors, locked; monitors that never had one are left out."""
    rows = await session.execute(_LATEST, {"monitor_ids": sorted(monitor_ids)})
    return {row.monitor_id: incident_of(row) for row in rows}


async def save(session: AsyncSession, incidents: Collection[Incident]) -> None:
    """Write incidents, new and known, in one statement. A result that is None keeps the stored one."""
    columns: dict[str, list[Any]] = {
        column: [_value(incident, name) for incident in incidents]
        for name, column in zip(_FIELDS, COLUMNS, strict=True)
    }
    columns["first_result"] = [incident.first_result for incident in incidents]
    columns["last_result"] = [incident.last_result for incident in incidents]
    await session.execute(_SAVE, columns)


async def write_events(session: AsyncSession, events: Sequence[Event]) -> None:
    """Write lines of timelines in their order, and a message to the relay for each that is to be told."""
    await session.execute(
        _EVENTS,
        {
            "organisation_ids": [event.organisation_id for event in events],
            "incident_ids": [event.incident_id for event in events],
            "moments": [to_datetime(event.at_ms) for event in events],
            "kinds": [event.kind.value for event in events],
            "actors": [event.actor for event in events],
            "details": [_detail(event) for event in events],
            "topic": INCIDENT_TOPIC,
        },
    )


async def monitor_of(session: AsyncSession, incident_id: UUID) -> Row[*tuple[Any, ...]] | None:
    """A row with the ``monitor_id`` of an incident, null for one of the platform; None without such an incident."""
    return (await session.execute(_MONITOR_OF, {"id": incident_id})).one_or_none()


async def lock(session: AsyncSession, incident_id: UUID) -> Incident | None:
    """One incident, locked until the transaction ends."""
    columns = [getattr(IncidentRow, name) for name in COLUMNS]
    query = select(*columns).where(IncidentRow.id == incident_id).with_for_update()
    row = (await session.execute(query)).one_or_none()
    return None if row is None else incident_of(row)


def incident_of(row: Row[*tuple[Any, ...]]) -> Incident:
    """A row with this module's columns, and perhaps ``explained_until``, as the domain knows it."""
    values: dict[str, Any] = {}
    for name, column in zip(_FIELDS, COLUMNS, strict=True):
        value = getattr(row, column)
        values[name] = _to_milliseconds(value) if name in _MOMENTS else value
    values["kind"], values["state"] = IncidentKind(row.kind), IncidentState(row.state)
    values["severity"] = Severity(row.severity)
    return Incident(**values, explained_until_ms=_to_milliseconds(getattr(row, "explained_until", None)))


def _view() -> Select[*tuple[Any, ...]]:
    return select(
        *(getattr(IncidentRow, name) for name in COLUMNS),
        cast(IncidentRow.first_result, Text).label("first_result"),
        cast(IncidentRow.last_result, Text).label("last_result"),
        Monitor.name.label("monitor_name"),
    ).outerjoin(Monitor, Monitor.id == IncidentRow.monitor_id)


async def get_view(session: AsyncSession, incident_id: UUID) -> IncidentView | None:
    return (await session.execute(_view().where(IncidentRow.id == incident_id))).one_or_none()


async def list_views(
    session: AsyncSession, *, state: str | None, monitor_id: UUID | None, before: UUID | None, limit: int
) -> Sequence[IncidentView]:
    """Incidents newest first, from behind ``before``."""
    query = _view().order_by(IncidentRow.id.desc()).limit(limit)
    if state is not None:
        query = query.where(IncidentRow.state == state)
    if state in ("open", "acknowledged"):
        query = query.where(IncidentRow.id.in_(_UNRESOLVED))
    if monitor_id is not None:
        query = query.where(IncidentRow.monitor_id == monitor_id)
    if before is not None:
        query = query.where(IncidentRow.id < before)
    return (await session.execute(query)).all()


async def events_of(session: AsyncSession, incident_id: UUID, limit: int) -> Sequence[IncidentEvent]:
    """The timeline of an incident, oldest first."""
    query = (
        select(IncidentEvent)
        .where(IncidentEvent.incident_id == incident_id)
        .order_by(IncidentEvent.id)
        .limit(limit)
    )
    return (await session.execute(query)).scalars().all()


async def affected_by(session: AsyncSession, incident_id: UUID, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """What this incident explains: id, monitor, its name, and where it stands."""
    query = (
        select(
            IncidentRow.id,
            IncidentRow.monitor_id,
            Monitor.name.label("monitor_name"),
            IncidentRow.state,
            IncidentRow.started_at,
            IncidentRow.resolved_at,
        )
        .outerjoin(Monitor, Monitor.id == IncidentRow.monitor_id)
        .where(IncidentRow.affected_by == incident_id)
        .order_by(IncidentRow.id)
        .limit(limit)
    )
    return (await session.execute(query)).all()


async def count_open(session: AsyncSession) -> int:
    """How many incidents are not resolved; for system sessions."""
    return int((await session.execute(_COUNT_OPEN)).scalar_one())


def _value(incident: Incident, name: str) -> Any:
    value = getattr(incident, name)
    return to_datetime(value) if name in _MOMENTS and value is not None else value


def _to_milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else to_milliseconds(moment)


def _detail(event: Event) -> str:
    told = {"tell": event.tell.value} if event.tell else {}
    return encode({**event.detail, **told})
