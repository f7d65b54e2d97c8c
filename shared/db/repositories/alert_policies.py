"""Alert policies, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import AlertPolicy


async def get(session: AsyncSession, policy_id: UUID) -> AlertPolicy | None:
    return await session.get(AlertPolicy, policy_id)


async def lock(session: AsyncSession, policy_id: UUID) -> AlertPolicy | None:
    """The policy, locked until the transaction ends."""
    return await session.get(AlertPolicy, policy_id, with_for_update=True)


async def list_policies(
    session: AsyncSession, *, after: tuple[int, UUID] | None, limit: int
) -> Sequence[AlertPolicy]:
    """By priority, then by age, from behind ``after``."""
    place = tuple_(AlertPolicy.priority, AlertPolicy.id)
    query = select(AlertPolicy).order_by(AlertPolicy.priority, AlertPolicy.id).limit(limit)
    if after is not None:
        query = query.where(place > after)
    return (await session.execute(query)).scalars().all()


async def of_organisations(session: AsyncSession, organisation_ids: Collection[UUID]) -> Sequence[AlertPolicy]:
    """All policies of these, in the order in which they are asked; for system sessions."""
    query = (
        select(AlertPolicy)
        .where(AlertPolicy.organisation_id.in_(organisation_ids))
        .order_by(AlertPolicy.priority, AlertPolicy.id)
    )
    return (await session.execute(query)).scalars().all()


async def remove(session: AsyncSession, policy_id: UUID) -> None:
    await session.execute(delete(AlertPolicy).where(AlertPolicy.id == policy_id))
