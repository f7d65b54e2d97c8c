"""Channels as their organisation sees them, and as the system uses them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import Channel

_FAILING = text("""
    UPDATE channels SET failing_since = coalesce(failing_since, :now), last_error = :error WHERE id = :channel_id
""")
_WORKING = text("""
    UPDATE channels SET failing_since = NULL, last_error = NULL WHERE id = :channel_id AND failing_since IS NOT NULL
""")


async def get(session: AsyncSession, channel_id: UUID) -> Channel | None:
    return await session.get(Channel, channel_id)


async def lock(session: AsyncSession, channel_id: UUID) -> Channel | None:
    """The channel, locked until the transaction ends; others may name it meanwhile."""
    return await session.get(Channel, channel_id, with_for_update={"key_share": True})


async def list_channels(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[Channel]:
    """In the order of their creation, from behind ``after``."""
    query = select(Channel).order_by(Channel.id).limit(limit)
    if after is not None:
        query = query.where(Channel.id > after)
    return (await session.execute(query)).scalars().all()


async def existing(session: AsyncSession, channel_ids: Collection[UUID]) -> set[UUID]:
    """Those of the ids that the session can see; they cannot be deleted until its transaction ends."""
    query = select(Channel.id).where(Channel.id.in_(channel_ids)).order_by(Channel.id)
    query = query.with_for_update(read=True, key_share=True)
    return set((await session.execute(query)).scalars())


async def of_organisations(session: AsyncSession, organisation_ids: Collection[UUID]) -> Sequence[Channel]:
    """All channels of these, oldest first; for system sessions."""
    query = select(Channel).where(Channel.organisation_id.in_(organisation_ids)).order_by(Channel.id)
    return (await session.execute(query)).scalars().all()


async def remove(session: AsyncSession, channel_id: UUID) -> None:
    await session.execute(delete(Channel).where(Channel.id == channel_id))


async def note_outcome(session: AsyncSession, channel_id: UUID, error: str | None, now: datetime) -> None:
    """Remember since when a channel fails for good, or that it works."""
    if error is None:
        await session.execute(_WORKING, {"channel_id": channel_id})
    else:
        await session.execute(_FAILING, {"channel_id": channel_id, "error": error, "now": now})
