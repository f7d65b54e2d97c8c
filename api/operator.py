"""What only the organisation that operates this installation may see: the platform itself."""

from __future__ import annotations

from http import HTTPStatus

from api.context import Context
from api.errors import ApiError
from shared.db.repositories import organisations
from shared.services.api_keys import Principal


async def is_operator(context: Context, principal: Principal) -> bool:
    """Whether it is the operator who asks."""
    async with context.database.tenant(principal.organisation_id) as session:
        organisation = await organisations.get(session, principal.organisation_id)
    return organisation is not None and organisation.is_operator


async def require_operator(context: Context, principal: Principal) -> None:
    """Raises a 403 for every other organisation, whatever its key's scopes."""
    if not await is_operator(context, principal):
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "operator_only",
            "only the organisation that operates this installation may do this",
        )
