"""The organisation of the session and its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import Organisation
from shared.db.repositories import organisations
from shared.services.errors import NotFoundError


async def get_organisation(session: AsyncSession, organisation_id: UUID) -> Organisation:
    """Raises ``NotFoundError`` when it was deleted while the request was on its way."""
    organisation = await organisations.get(session, organisation_id)
    if organisation is None:
        raise NotFoundError("organisation")
    return organisation


async def rename_organisation(session: AsyncSession, organisation_id: UUID, name: str) -> Organisation:
    """Raises ``NotFoundError``."""
    organisation = await get_organisation(session, organisation_id)
    organisation.name = name
    return organisation


async def list_members(session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Members with ``id``, ``email``, ``name``, ``role`` and ``created_at``, in the order of their ids."""
    return await organisations.list_members(session, after=after, limit=limit)
