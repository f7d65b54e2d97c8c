"""Notifications on their way, and the log of what became of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import encode
from shared.db.base import new_id
from shared.db.models import Channel, Delivery


@dataclass(frozen=True, slots=True)
class Told:
    """A channel that was, or is being, told of an incident since it was last well."""

    incident_id: UUID
    episode: int
    channel_id: UUID


@dataclass(frozen=True, slots=True)
class Queued:
    """A delivery that is to be handed to the queue; ``queued`` counts how often it was before."""

    id: UUID
    organisation_id: UUID
    queued: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to. ``state`` is delivered, failed, skipped or retrying."""

    state: str
    error: str | None = None
    status_code: int | None = None
    response: str | None = None
    is_uncertain: bool = False


_AT_ONCE = 1_000
"""Rows in one statement: it has to end long before PostgreSQL's limit on its time."""

_ADDED = {
    **dict.fromkeys(("id", "organisation_id", "incident_id", "channel_id", "fallback_of"), "uuid"),
    **dict.fromkeys(("dedupe_key", "event", "channel_name", "channel_kind", "notification", "state"), "text"),
    **dict.fromkeys(("created_at", "queue_after"), "timestamptz"),
    "episode": "bigint",
}
# Arrays, because a statement has room for 32,767 parameters: a hundred channels fill that with 26 incidents.
_ADD = text(f"""
    INSERT INTO deliveries ({", ".join(_ADDED)})
    SELECT {", ".join("u.notification::jsonb" if name == "notification" else f"u.{name}" for name in _ADDED)}
    FROM unnest({", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _ADDED.items())}) WITH ORDINALITY
        AS u ({", ".join(_ADDED)}, place)
    ORDER BY u.place
    ON CONFLICT (dedupe_key) DO NOTHING
    RETURNING id
""")  # noqa: S608 names of columns, from this module
_TOLD = text("""
    SELECT DISTINCT d.incident_id, d.episode, d.channel_id
    FROM unnest(CAST(:incident_ids AS uuid[]), CAST(:episodes AS bigint[])) AS u (incident_id, episode)
    JOIN deliveries AS d ON d.incident_id = u.incident_id AND d.episode = u.episode
    WHERE d.state NOT IN ('failed', 'skipped')
""")
_TAKE_DUE = text("""
    SELECT id, organisation_id, queued FROM deliveries WHERE queue_after <= :now
    ORDER BY queue_after LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_MARK_QUEUED = text("""
    UPDATE deliveries SET queued = queued + 1, queue_after = CAST(:now AS timestamptz)
            + least(:again * 2.0 ^ least(queued, 20), greatest(:longest, :again)) * interval '1 second'
    WHERE id = ANY(CAST(:ids AS uuid[]))
""")
_CLAIM = text("""
    UPDATE deliveries SET state = 'sending', attempts = attempts + 1, claimed_at = :now, not_before = NULL,
        possibly_duplicated = possibly_duplicated OR state = 'sending',
        settled_at = NULL, queue_after = :again
    WHERE id = :id
""")
_SETTLE = text("""
    UPDATE deliveries SET state = :state, error = :error, status_code = :status_code, response = :response,
        possibly_duplicated = possibly_duplicated OR :is_uncertain, claimed_at = NULL,
        settled_at = CAST(:settled_at AS timestamptz), queue_after = CAST(:queue_after AS timestamptz),
        not_before = CAST(:not_before AS timestamptz)
    WHERE id = :id AND state = 'sending' AND attempts = :attempts
""")
_SKIP = text("""
    UPDATE deliveries SET state = 'skipped', error = :reason, settled_at = :now, queue_after = NULL
    WHERE id = :id
""")
_POSTPONE = text("UPDATE deliveries SET queue_after = :until WHERE id = :id AND settled_at IS NULL")
_BEFORE = text("""
    SELECT EXISTS (
        SELECT FROM deliveries WHERE incident_id = :incident_id AND channel_id = :channel_id AND number < :number
            AND state IN ('pending', 'sending', 'retrying')
    )
""")
_WAS_TOLD = text("""
    SELECT EXISTS (
        SELECT FROM deliveries WHERE incident_id = :incident_id AND channel_id = :channel_id AND episode = :episode
            AND number < :number AND state = 'delivered'
    )
""")
# Whoever waited for this one may go now.
_RELEASE_NEXT = text("""
    UPDATE deliveries SET queue_after = :now
    WHERE incident_id = :incident_id AND channel_id = :channel_id AND number > :number AND state = 'pending'
""")
_NOTE = text("""
    INSERT INTO incident_events (organisation_id, incident_id, at, kind, detail)
    SELECT organisation_id, id, :now, 'delivery', CAST(:detail AS jsonb) FROM incidents WHERE id = :incident_id
""")
_PURGE = text("""
    DELETE FROM deliveries WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM deliveries WHERE created_at < :before AND settled_at IS NOT NULL LIMIT :limit
    ))
""")
PURGED_AT_ONCE = 10_000


async def add(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write deliveries; those whose key is there already are left out. Answers how many were new."""
    starts = range(0, len(rows), _AT_ONCE)
    return sum([await _add(session, rows[start : start + _AT_ONCE]) for start in starts])


async def _add(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> int:
    columns = {name: [row.get(name) for row in rows] for name in _ADDED}
    # Many rows share one notification, which may be long.
    texts = {id(row["notification"]): encode(row["notification"]) for row in rows}
    columns["notification"] = [texts[id(row["notification"])] for row in rows]
    return len((await session.execute(_ADD, columns)).all())


async def told(session: AsyncSession, episodes: Collection[tuple[UUID, int]]) -> list[Told]:
    """Which channels were told of incidents in these episodes, or still will be."""
    values = {
        "incident_ids": [incident_id for incident_id, _ in episodes],
        "episodes": [episode for _, episode in episodes],
    }
    return [Told(*row) for row in await session.execute(_TOLD, values)]


async def take_due(session: AsyncSession, now: datetime, limit: int) -> list[Queued]:
    """Lock deliveries that are to be handed to the queue; those that another relay holds are left out."""
    return [Queued(*row) for row in await session.execute(_TAKE_DUE, {"now": now, "limit": limit})]


async def mark_queued(
    session: AsyncSession, ids: Collection[UUID], now: datetime, *, again: float, longest: float
) -> None:
    """They were handed over; without an outcome they are again after ``again`` s, twice that, … ``longest``."""
    await session.execute(_MARK_QUEUED, {"ids": list(ids), "now": now, "again": again, "longest": longest})


async def lock(session: AsyncSession, delivery_id: UUID) -> Delivery | None:
    return await session.get(Delivery, delivery_id, with_for_update=True)


async def claim(session: AsyncSession, delivery_id: UUID, now: datetime, again: datetime) -> None:
    """Begin an attempt on a locked row. One that was being sent already may then be sent a second time."""
    await session.execute(_CLAIM, {"id": delivery_id, "now": now, "again": again})


async def settle(
    session: AsyncSession,
    delivery: Delivery,
    outcome: Outcome,
    *,
    now: datetime,
    retry_at: datetime | None,
    grace: timedelta,
) -> bool:
    """Record what a claimed attempt came to; False when somebody else has claimed it since.

    One that is to be tried again at ``retry_at`` is handed to the queue again, should nobody have, ``grace`` later.
    """
    is_over = outcome.state != "retrying"
    values = {
        "id": delivery.id,
        "attempts": delivery.attempts,
        "state": outcome.state,
        "error": outcome.error,
        "status_code": outcome.status_code,
        "response": outcome.response,
        "is_uncertain": outcome.is_uncertain,
        "settled_at": now if is_over else None,
        "queue_after": None if is_over or retry_at is None else retry_at + grace,
        "not_before": None if is_over else retry_at,
    }
    result = await session.execute(_SETTLE, values)
    return bool(getattr(result, "rowcount", 0))


async def skip(session: AsyncSession, delivery_id: UUID, reason: str, now: datetime) -> None:
    """Settle a delivery that is not to be sent."""
    await session.execute(_SKIP, {"id": delivery_id, "reason": reason, "now": now})


async def add_fallback(
    session: AsyncSession, row: Mapping[str, Any], channel: Channel, *, instead_of: UUID, key: str, now: datetime
) -> None:
    """The same notification through another channel, unless that one has it anyway."""
    fallback = {
        **row,
        "id": new_id(),
        "dedupe_key": key,
        "channel_id": channel.id,
        "channel_name": channel.name,
        "channel_kind": channel.kind,
        "fallback_of": instead_of,
        "state": "pending",
        "created_at": now,
        "queue_after": now,
    }
    await add(session, [fallback])


async def postpone(session: AsyncSession, delivery_id: UUID, until: datetime) -> None:
    """Have it handed to the queue again, not before ``until``."""
    await session.execute(_POSTPONE, {"id": delivery_id, "until": until})


async def has_unsettled_before(session: AsyncSession, delivery: Delivery) -> bool:
    """Whether an earlier notification of the same incident through the same channel is still on its way."""
    return bool(await session.scalar(_BEFORE, _place(delivery)))


async def was_told(session: AsyncSession, delivery: Delivery) -> bool:
    """Whether this channel has got an earlier notification of the same episode."""
    return bool(await session.scalar(_WAS_TOLD, {**_place(delivery), "episode": delivery.episode}))


async def release_next(session: AsyncSession, delivery: Delivery, now: datetime) -> None:
    await session.execute(_RELEASE_NEXT, {**_place(delivery), "now": now})


async def note_on_incident(
    session: AsyncSession, incident_id: UUID, detail: Mapping[str, Any], now: datetime
) -> None:
    """A line in the incident's timeline, if it still exists."""
    values = {"incident_id": incident_id, "detail": json.dumps(detail), "now": now}
    await session.execute(_NOTE, values)


async def of_channel(
    session: AsyncSession, channel_id: UUID, *, before: UUID | None, limit: int
) -> Sequence[Delivery]:
    """Newest first."""
    query = select(Delivery).where(Delivery.channel_id == channel_id).order_by(Delivery.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Delivery.id < before)
    return (await session.execute(query)).scalars().all()


async def purge(session: AsyncSession, before: datetime) -> int:
    """Delete settled deliveries that were made before a time; answers how many.

    In portions: a statement has a limit on its time, and after a long pause there may be millions.
    """
    gone = 0
    while True:
        found = await session.execute(_PURGE, {"before": before, "limit": PURGED_AT_ONCE})
        portion = int(getattr(found, "rowcount", 0))
        gone += portion
        if portion < PURGED_AT_ONCE:
            return gone


def _place(delivery: Delivery) -> dict[str, Any]:
    return {
        "incident_id": delivery.incident_id,
        "channel_id": delivery.channel_id,
        "number": delivery.number,
    }
