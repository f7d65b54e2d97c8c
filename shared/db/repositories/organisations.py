"""Organisations and the people in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import Membership, Organisation, User

# Held until the transaction ends: two processes that start at once set up one organisation, not two.
_LOCK_BOOTSTRAP = text("SELECT pg_advisory_xact_lock(7226003)")


async def get(session: AsyncSession, organisation_id: UUID) -> Organisation | None:
    return await session.get(Organisation, organisation_id)


async def list_members(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Members of the session's organisation in the order of their ids."""
    query = (
        select(User.id, User.email, User.name, Membership.role, Membership.created_at)
        .join(User, User.id == Membership.user_id)
        .order_by(User.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(User.id > after)
    return (await session.execute(query)).all()


class Owner(NamedTuple):
    """Who an organisation belongs to."""

    organisation_id: UUID
    user_id: UUID
    email: str


async def first_owner(session: AsyncSession) -> Owner | None:
    """The owner of the oldest organisation; for system sessions."""
    query = (
        select(Membership.organisation_id, User.id, User.email)
        .join(User, User.id == Membership.user_id)
        .where(Membership.role == "owner")
        .order_by(Membership.organisation_id)
        .limit(1)
    )
    row = (await session.execute(query)).first()
    return None if row is None else Owner(*row)


async def is_empty(session: AsyncSession) -> bool:
    """Whether there is no organisation yet; holds a lock on the answer until the transaction ends."""
    await session.execute(_LOCK_BOOTSTRAP)
    return (await session.execute(select(Organisation.id).limit(1))).first() is None
