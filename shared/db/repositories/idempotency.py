"""Answers to POSTs that may be sent again."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import IdempotencyKey

# A second request with the same key waits here for the first one's transaction. A key that was claimed but never
# answered (its process died) is free again after ten minutes; one that was answered after a day.
_CLAIM = text("""
    INSERT INTO idempotency_keys AS k (organisation_id, key, request_hash, created_at)
    VALUES (:organisation_id, :key, :request_hash, :now)
    ON CONFLICT (organisation_id, key) DO UPDATE SET request_hash = excluded.request_hash, status_code = NULL,
        body = NULL, created_at = excluded.created_at
    WHERE k.created_at < excluded.created_at - CASE WHEN k.status_code IS NULL THEN interval '10 minutes'
        ELSE interval '1 day' END
    RETURNING key
""")
_ANSWER = text("UPDATE idempotency_keys SET status_code = :status_code, body = :body WHERE key = :key")


async def claim(session: AsyncSession, organisation_id: UUID, key: str, request_hash: bytes, now: datetime) -> bool:
    """Whether this request is the first with its key."""
    values = {
        "organisation_id": organisation_id,
        "key": key,
        "request_hash": request_hash,
        "now": now,
    }
    return (await session.execute(_CLAIM, values)).first() is not None


async def get(session: AsyncSession, key: str) -> IdempotencyKey | None:
    """None once it was given back, which another request may do at any moment."""
    return (await session.execute(select(IdempotencyKey).where(IdempotencyKey.key == key))).scalar_one_or_none()


async def answer(session: AsyncSession, key: str, status_code: int, body: bytes) -> None:
    await session.execute(_ANSWER, {"key": key, "status_code": status_code, "body": body})


async def release(session: AsyncSession, key: str) -> None:
    """Give a claimed key back: the request failed, and may be tried again."""
    await session.execute(delete(IdempotencyKey).where(IdempotencyKey.key == key))


async def purge(session: AsyncSession, before: datetime) -> int:
    """Forget answers that are older; answers how many. For system sessions."""
    statement = delete(IdempotencyKey).where(IdempotencyKey.created_at < before).returning(IdempotencyKey.key)
    return len((await session.execute(statement)).all())
