"""Heartbeats and their pings. Pings are a queue: stored by whoever received them, taken by whoever judges them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import PingMessage
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.heartbeat import Ping, Signal
from shared.domain.recurrence import Span, merged


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """A heartbeat with what its monitor says; ``state`` and ``check_spec`` are JSON text."""

    monitor_id: UUID
    state: str
    revision: int
    region: str
    paused: bool
    check_spec: str


_ADD = text("""
    INSERT INTO heartbeats (monitor_id, organisation_id, token_hash, token, state, next_deadline_at)
    VALUES (:monitor_id, :organisation_id, :token_hash, :token, CAST(:state AS jsonb), :deadline)
    ON CONFLICT (monitor_id) DO UPDATE SET state = excluded.state, next_deadline_at = excluded.next_deadline_at
""")
_REST = text("UPDATE heartbeats SET next_deadline_at = NULL WHERE monitor_id = :monitor_id")
_REMOVE = (
    text("DELETE FROM heartbeat_pings WHERE monitor_id = :monitor_id"),
    text("DELETE FROM heartbeats WHERE monitor_id = :monitor_id"),
)
_STORE = text("""
    WITH known AS (
        SELECT p.*, h.monitor_id, h.organisation_id
        FROM unnest(
            CAST(:ids AS uuid[]), CAST(:hashes AS bytea[]), CAST(:received AS timestamptz[]),
            CAST(:signals AS text[]), CAST(:exit_codes AS bigint[]), CAST(:run_ids AS text[]),
            CAST(:bodies AS text[])
        ) AS p (id, token_hash, received_at, signal, exit_code, run_id, body)
        JOIN heartbeats AS h ON h.token_hash = p.token_hash
    ), stored AS (
        INSERT INTO heartbeat_pings
            (id, organisation_id, monitor_id, received_at, signal, exit_code, run_id, body)
        SELECT id, organisation_id, monitor_id, received_at, signal, exit_code, run_id, body FROM known
        ON CONFLICT (id) DO NOTHING
    )
    SELECT id FROM known
""")
# Rows that another evaluator holds are left to it; to judge once more what it has just judged changes nothing.
_TAKE = text("""
    WITH wanted AS (
        SELECT monitor_id FROM heartbeats WHERE next_deadline_at <= :now
        UNION SELECT monitor_id FROM (SELECT monitor_id FROM heartbeat_pings ORDER BY id LIMIT :pings) AS oldest
    )
    SELECT h.monitor_id, h.state::text, m.revision, m.regions[1],
        m.paused_at IS NOT NULL OR m.kind <> 'heartbeat' AS paused, m.check_spec::text
    FROM heartbeats AS h JOIN monitors AS m ON m.id = h.monitor_id
    WHERE h.monitor_id IN (SELECT monitor_id FROM wanted)
    ORDER BY h.monitor_id LIMIT :limit
    FOR NO KEY UPDATE OF h SKIP LOCKED
""")
_TAKE_PINGS = text("""
    DELETE FROM heartbeat_pings WHERE monitor_id = ANY(CAST(:monitor_ids AS uuid[]))
    RETURNING monitor_id, received_at, signal, exit_code, run_id, body
""")
_SAVE = text("""
    UPDATE heartbeats AS h SET state = u.state::jsonb, next_deadline_at = u.deadline
    FROM unnest(CAST(:monitor_ids AS uuid[]), CAST(:states AS text[]), CAST(:deadlines AS timestamptz[]))
        AS u (monitor_id, state, deadline)
    WHERE h.monitor_id = u.monitor_id
""")
_BEAT = text("""
    INSERT INTO heartbeat_receivers (id, alive_from, alive_until) VALUES (:id, :alive_from, :alive_until)
    ON CONFLICT (id) DO UPDATE SET alive_until = greatest(heartbeat_receivers.alive_until, excluded.alive_until)
""")
_RECEPTION = text("SELECT alive_from, alive_until FROM heartbeat_receivers WHERE alive_until > :since")
_FORGET = (
    text("DELETE FROM heartbeat_receivers WHERE alive_until < :before"),
    text(
        "DELETE FROM heartbeat_pings AS p WHERE NOT EXISTS (SELECT FROM heartbeats WHERE monitor_id = p.monitor_id)"
    ),
)


async def begin(
    session: AsyncSession,
    monitor_id: UUID,
    organisation_id: UUID,
    *,
    token_hash: bytes,
    token: str,
    state: str,
    deadline: datetime | None,
) -> None:
    """Expect pings from now on. A monitor that had a token keeps it; what it was remembered for is replaced."""
    values = {"monitor_id": monitor_id, "organisation_id": organisation_id, "state": state, "deadline": deadline}
    await session.execute(_ADD, {**values, "token_hash": token_hash, "token": token})


async def rest(session: AsyncSession, monitor_id: UUID) -> None:
    """Expect nothing until ``begin``."""
    await session.execute(_REST, {"monitor_id": monitor_id})


async def remove(session: AsyncSession, monitor_id: UUID) -> None:
    """Forget the token and the pings of a monitor."""
    for statement in _REMOVE:
        await session.execute(statement, {"monitor_id": monitor_id})


async def store_pings(session: AsyncSession, pings: Sequence[PingMessage]) -> set[UUID]:
    """Store pings and return the ids of those whose token is known; for system sessions.

    A ping that is stored already is not stored again.
    """
    columns = {
        "ids": [ping.id for ping in pings],
        "hashes": [ping.token_hash for ping in pings],
        "received": [to_datetime(ping.received_ms) for ping in pings],
        "signals": [ping.signal.value for ping in pings],
        "exit_codes": [ping.exit_code for ping in pings],
        "run_ids": [ping.run_id for ping in pings],
        "bodies": [ping.body for ping in pings],
    }
    return set((await session.execute(_STORE, columns)).scalars())


async def take(session: AsyncSession, now: datetime, *, limit: int, pings: int) -> list[HeartbeatRow]:
    """Lock heartbeats whose deadline has passed, or that have some of the oldest pings; for system sessions.

    No two evaluators take the same one; the lock is held until the transaction ends.
    """
    rows = await session.execute(_TAKE, {"now": now, "limit": limit, "pings": pings})
    return [HeartbeatRow(*row) for row in rows]


async def take_pings(session: AsyncSession, monitor_ids: Collection[UUID]) -> dict[UUID, list[Ping]]:
    """Remove the pings of locked heartbeats from the queue; they come back if the transaction fails."""
    found: dict[UUID, list[Ping]] = {}
    for row in await session.execute(_TAKE_PINGS, {"monitor_ids": list(monitor_ids)}):
        found.setdefault(row[0], []).append(_ping(row))
    return found


def _ping(row: Row[*tuple[Any, ...]]) -> Ping:
    _, received_at, signal, exit_code, run_id, body = row
    return Ping(to_milliseconds(received_at), Signal(signal), exit_code, run_id, body)


async def save(session: AsyncSession, rows: Sequence[tuple[UUID, str, datetime | None]]) -> None:
    """Write locked heartbeats in one statement: monitor, state as JSON text, next deadline."""
    monitor_ids, states, deadlines = ([row[column] for row in rows] for column in range(3))
    await session.execute(_SAVE, {"monitor_ids": monitor_ids, "states": states, "deadlines": deadlines})


async def note_receiving(session: AsyncSession, span_id: UUID, alive_from: datetime, alive_until: datetime) -> None:
    """A receiver has been able to receive in this span, which grows with each call."""
    await session.execute(_BEAT, {"id": span_id, "alive_from": alive_from, "alive_until": alive_until})


async def received_since(session: AsyncSession, since: datetime) -> list[Span]:
    """The spans after a moment in which somebody could receive pings, in milliseconds, merged."""
    rows = await session.execute(_RECEPTION, {"since": since})
    return merged([(to_milliseconds(start), to_milliseconds(end)) for start, end in rows])


async def forget(session: AsyncSession, before: datetime) -> None:
    """Remove spans of reception that ended before, and pings of monitors that are gone."""
    await session.execute(_FORGET[0], {"before": before})
    await session.execute(_FORGET[1])
