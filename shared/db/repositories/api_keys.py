"""API keys: found by hash across tenants, managed within one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import ApiKey

# Written at most once a minute per key: "last used" is for people, and a request should cost no write.
_TOUCH = text("""
    UPDATE api_keys SET last_used_at = :now
    WHERE id = :id AND (last_used_at IS NULL OR last_used_at < CAST(:now AS timestamptz) - interval '1 minute')
""")


async def find(session: AsyncSession, key_hash: bytes) -> ApiKey | None:
    """The key with this hash, whatever its state; for system sessions."""
    return (await session.execute(select(ApiKey).where(ApiKey.key_hash == key_hash))).scalar_one_or_none()


async def touch(session: AsyncSession, key_id: UUID, now: datetime) -> None:
    """Note that a key was used; for system sessions."""
    await session.execute(_TOUCH, {"id": key_id, "now": now})


async def list_active(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[ApiKey]:
    """Keys that are not revoked, in the order of their creation."""
    query = select(ApiKey).where(ApiKey.revoked_at.is_(None)).order_by(ApiKey.id).limit(limit)
    if after is not None:
        query = query.where(ApiKey.id > after)
    return (await session.execute(query)).scalars().all()


async def get_active(session: AsyncSession, key_id: UUID) -> ApiKey | None:
    query = select(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    return (await session.execute(query)).scalar_one_or_none()


async def purge(session: AsyncSession, before: datetime) -> int:
    """Delete keys that were revoked or ran out earlier; answers how many. For system sessions."""
    is_dead = or_(ApiKey.revoked_at < before, ApiKey.expires_at < before)
    return len((await session.execute(delete(ApiKey).where(is_dead).returning(ApiKey.id))).all())
