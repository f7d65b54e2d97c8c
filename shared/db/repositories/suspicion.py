"""What workers saw of late, and the incidents whose alerts wait for it. For system sessions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories.incidents import COLUMNS, incident_of
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.dependency import Parent
from shared.domain.incident import Incident
from shared.domain.mass_failure import CAUSE, Beat, Suspect
from shared.domain.state import MonitorStatus

Glances = dict[tuple[str, str, int], tuple[int, int, int]]
"""(worker, region, beat) to (turned, well, failing)."""

_HELD_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Held:
    """An incident whose alert waits. ``parents`` are those of its monitor."""

    incident: Incident
    parents: tuple[UUID, ...]
    check_started_at_ms: int


@dataclass(frozen=True, slots=True)
class MassFailure:
    """An open incident of the platform with how many incidents it explains, and how many of those are open."""

    incident: Incident
    affected: int
    still_failing: int


_ADD = text("""
    INSERT INTO worker_beats (worker, region, at, turned, well, failing, stored_at)
    SELECT *, CAST(:now AS timestamptz) FROM unnest(
        CAST(:workers AS text[]), CAST(:regions AS text[]), CAST(:moments AS timestamptz[]),
        CAST(:turned AS bigint[]), CAST(:well AS bigint[]), CAST(:failing AS bigint[])
    )
""")
_BEATS = text("""
    SELECT region, worker, at, sum(turned)::bigint, sum(well)::bigint, sum(failing)::bigint FROM worker_beats
    WHERE stored_at > :since AND region = ANY(CAST(:regions AS text[]))
    GROUP BY 1, 2, 3 ORDER BY 3
""")
_PURGE = text("DELETE FROM worker_beats WHERE stored_at < :before")
# What a recorder holds is being written this moment and is looked at next time.
_HELD = text(f"""
    SELECT {", ".join(f"i.{name}" for name in COLUMNS)}, m.parents,
        CASE WHEN i.reopened > 0 THEN i.last_result ELSE i.first_result END ->> 'started_at' AS check_started_at
    FROM incidents AS i LEFT JOIN monitors AS m ON m.id = i.monitor_id
    WHERE i.held ORDER BY i.id LIMIT :limit FOR UPDATE OF i SKIP LOCKED
""")  # noqa: S608 names of columns
_PARENTS = text("""
    SELECT m.id, m.interval_seconds, s.status, s.overlay, s.last_slot_at, s.consecutive_failures,
        i.id AS incident_id
    FROM monitors AS m
    JOIN monitor_state AS s ON s.monitor_id = m.id
    LEFT JOIN incidents AS i ON i.monitor_id = m.id AND i.state <> 'resolved' AND i.kind = 'monitor'
        AND i.severity = 'down'
    WHERE m.id = ANY(CAST(:ids AS uuid[]))
""")
_MASS_FAILURES = text(f"""
    SELECT {", ".join(f"i.{name}" for name in COLUMNS)}, a.affected, a.still_failing
    FROM incidents AS i CROSS JOIN LATERAL (
        SELECT count(*) AS affected, count(*) FILTER (WHERE state <> 'resolved') AS still_failing
        FROM incidents WHERE affected_by = i.id
    ) AS a
    WHERE i.kind = 'platform' AND i.state <> 'resolved' AND i.cause = :cause FOR UPDATE OF i
""")  # noqa: S608 names of columns
_OPERATOR = text("SELECT id FROM organisations ORDER BY is_operator DESC, created_at, id LIMIT 1")
_SWEEP_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('tocsin incident sweep'))")
_IDLE = text("""
    SELECT NOT EXISTS (SELECT FROM incidents WHERE held)
        AND NOT EXISTS (SELECT FROM incidents WHERE kind = 'platform' AND state <> 'resolved' AND cause = :cause)
""")


async def write_beats(session: AsyncSession, glances: Glances, now_ms: int) -> None:
    """Note what workers saw; rows are only added, so that recorders do not wait for each other."""
    await session.execute(
        _ADD,
        {
            "workers": [worker for worker, _, _ in glances],
            "regions": [region for _, region, _ in glances],
            "moments": [to_datetime(at_ms) for _, _, at_ms in glances],
            "turned": [turned for turned, _, _ in glances.values()],
            "well": [well for _, well, _ in glances.values()],
            "failing": [failing for _, _, failing in glances.values()],
            "now": to_datetime(now_ms),
        },
    )


async def take_sweep_lock(session: AsyncSession) -> bool:
    """Be the one who sweeps until the transaction ends; False when another process is."""
    return bool((await session.execute(_SWEEP_LOCK)).scalar_one())


async def is_idle(session: AsyncSession) -> bool:
    """Whether no alert waits and no mass failure goes on: nearly always."""
    return bool((await session.execute(_IDLE, {"cause": CAUSE})).scalar_one())


async def held(session: AsyncSession) -> list[Held]:
    """The incidents whose alerts wait, oldest first, locked."""
    return [_held(row) for row in await session.execute(_HELD, {"limit": _HELD_AT_ONCE})]


async def parents(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, Parent]:
    rows = await session.execute(_PARENTS, {"ids": list(monitor_ids)})
    return {row.id: _parent(row) for row in rows}


async def beats(session: AsyncSession, regions: Collection[str], since_ms: int) -> dict[str, dict[str, list[Beat]]]:
    """What was stored since then, by region and worker, in order of time."""
    found: dict[str, dict[str, list[Beat]]] = {}
    values = {"regions": list(regions), "since": to_datetime(since_ms)}
    for region, worker, at, *counts in await session.execute(_BEATS, values):
        found.setdefault(region, {}).setdefault(worker, []).append(Beat(to_milliseconds(at), *counts))
    return found


async def purge_beats(session: AsyncSession, before_ms: int) -> None:
    await session.execute(_PURGE, {"before": to_datetime(before_ms)})


async def mass_failures(session: AsyncSession) -> dict[Suspect, MassFailure]:
    """The mass failures that go on, by their suspect, locked."""
    rows = await session.execute(_MASS_FAILURES, {"cause": CAUSE})
    return {
        Suspect(row.worker, row.region): MassFailure(incident_of(row), row.affected, row.still_failing)
        for row in rows
    }


async def operator(session: AsyncSession) -> UUID | None:
    """The organisation that runs the platform; None before there is any."""
    found: UUID | None = (await session.execute(_OPERATOR)).scalar_one_or_none()
    return found


def _held(row: Row[*tuple[Any, ...]]) -> Held:
    incident = incident_of(row)
    started = datetime.fromisoformat(row.check_started_at) if row.check_started_at else None
    started_ms = incident.started_at_ms if started is None else to_milliseconds(started)
    return Held(incident, tuple(row.parents or ()), started_ms)


def _parent(row: Row[*tuple[Any, ...]]) -> Parent:
    return Parent(
        interval_ms=row.interval_seconds * 1000,
        status=MonitorStatus(row.status),
        overlay=MonitorStatus(row.overlay) if row.overlay else None,
        last_slot_ms=-1 if row.last_slot_at is None else to_milliseconds(row.last_slot_at),
        consecutive_failures=row.consecutive_failures,
        incident_id=row.incident_id,
    )
