"""API keys: made here, shown once, and known afterwards only by their hash."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.models import ApiKey
from shared.db.repositories import api_keys
from shared.domain.clock import Clock, to_datetime
from shared.services.errors import NotFoundError

KEY_PREFIX: Final = "tcs_"
_KEY_BYTES = 32
_SHOWN = len(KEY_PREFIX) + 6
_MAX_KEY_LENGTH = 100


class Scope(StrEnum):
    """What a key may do; each scope includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_INCLUDES = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an organisation through one of its keys."""

    organisation_id: UUID
    key_id: UUID
    scopes: frozenset[Scope]


def hash_key(key: str) -> bytes:
    return sha256(key.encode()).digest()


async def authenticate(session: AsyncSession, key: str, clock: Clock) -> Principal | None:
    """Whose key this is, or None for one that is unknown, revoked or expired; for system sessions."""
    if not key.startswith(KEY_PREFIX) or len(key) > _MAX_KEY_LENGTH:
        return None
    found = await api_keys.find(session, hash_key(key))
    now = to_datetime(clock.now_ms())
    if found is None or found.revoked_at is not None or (found.expires_at and found.expires_at <= now):
        return None
    await api_keys.touch(session, found.id, now)
    scopes = frozenset[Scope]().union(*(_INCLUDES[Scope(scope)] for scope in found.scopes))
    return Principal(found.organisation_id, found.id, scopes)


async def create_key(
    session: AsyncSession,
    organisation_id: UUID,
    *,
    name: str,
    scopes: Sequence[Scope],
    expires_at: datetime | None = None,
    created_by: UUID | None = None,
    clock: Clock,
) -> tuple[ApiKey, str]:
    """A new key: its row, and the key itself, which cannot be read again."""
    key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    row = ApiKey(
        id=new_id(),
        organisation_id=organisation_id,
        name=name,
        prefix=key[:_SHOWN],
        key_hash=hash_key(key),
        scopes=[scope.value for scope in scopes],
        created_by=created_by,
        created_at=to_datetime(clock.now_ms()),
        expires_at=expires_at,
    )
    session.add(row)
    await session.flush()
    return row, key


async def actor_name(session: AsyncSession, key_id: UUID) -> str:
    """Who acted through a key, as it is written down."""
    key = await api_keys.get_active(session, key_id)
    return f"API key {key.name}" if key else "a revoked API key"


async def list_keys(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[ApiKey]:
    return await api_keys.list_active(session, after=after, limit=limit)


async def revoke_key(session: AsyncSession, key_id: UUID, clock: Clock) -> None:
    """Make a key useless at once; raises ``NotFoundError``."""
    row = await api_keys.get_active(session, key_id)
    if row is None:
        raise NotFoundError("API key")
    row.revoked_at = to_datetime(clock.now_ms())
