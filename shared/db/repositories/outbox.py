"""Messages that were written together with the change they tell of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

SCHEDULE_TOPIC = "schedule"
"""The cadence or content of a monitor changed, or the monitor is gone; ``key`` is its id."""
INCIDENT_TOPIC = "incident"
"""An incident changed in a way that people may want to hear of; ``key`` is its id."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    id: int
    organisation_id: UUID
    topic: str
    key: str
    payload: dict[str, Any]
    created_at: datetime


_ADD = text("""
    INSERT INTO outbox (organisation_id, topic, key, payload)
    VALUES (:organisation_id, :topic, :key, CAST(:payload AS jsonb))
""")
# Two relays take different rows instead of waiting for each other.
_TAKE = text("""
    SELECT id, organisation_id, topic, key, payload, created_at FROM outbox
    WHERE topic = :topic ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_DELETE = text("DELETE FROM outbox WHERE id = ANY(CAST(:ids AS bigint[]))")


async def add(
    session: AsyncSession, organisation_id: UUID, topic: str, key: str, payload: Mapping[str, Any]
) -> None:
    """Write a message into the transaction of the session."""
    values = {"organisation_id": organisation_id, "topic": topic, "key": key, "payload": json.dumps(payload)}
    await session.execute(_ADD, values)


async def take(session: AsyncSession, topic: str, limit: int) -> list[OutboxMessage]:
    """Lock the oldest messages of a topic that nobody else holds, until the transaction ends; for system sessions.

    Ids are given out before commit, so a lower id may still appear later: order is kept per transaction only.
    """
    return [OutboxMessage(*row) for row in await session.execute(_TAKE, {"topic": topic, "limit": limit})]


async def delete(session: AsyncSession, ids: Sequence[int]) -> None:
    """Remove messages that were sent."""
    await session.execute(_DELETE, {"ids": ids})
