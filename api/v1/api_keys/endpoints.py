"""``/v1/api-keys``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Admin
from api.context import ContextDep
from api.cursors import PageQuery, id_cursor, read_id_cursor
from api.errors import invalid
from api.idempotency import IdempotencyDep
from api.responses import encode, page
from api.strict_json import StrictRoute
from api.v1.api_keys.schemas import EXAMPLE, ApiKeyCreated, ApiKeyPage, NewApiKey, key_document
from shared.domain.clock import to_milliseconds
from shared.services.api_keys import create_key, list_keys, revoke_key
from shared.services.idempotency import Answer

router = APIRouter(prefix="/v1/api-keys", tags=["access"], route_class=StrictRoute)


NewKey = Annotated[NewApiKey, Body(openapi_examples={"ci": {"summary": "For a pipeline", "value": EXAMPLE}})]


@router.post("", status_code=HTTPStatus.CREATED, response_model=ApiKeyCreated, summary="Create an API key")
async def create_api_key(context: ContextDep, principal: Admin, once: IdempotencyDep, wanted: NewKey) -> Response:
    """The answer holds the key, this once: only its hash is stored."""
    if wanted.expires_at and to_milliseconds(wanted.expires_at) <= context.clock.now_ms():
        raise invalid("expires_at", "this time has passed")

    async def work(session: AsyncSession) -> Answer:
        row, key = await create_key(
            session,
            principal.organisation_id,
            name=wanted.name,
            scopes=wanted.scopes,
            expires_at=wanted.expires_at,
            clock=context.clock,
        )
        return Answer(HTTPStatus.CREATED.value, encode({**key_document(row), "key": key}))

    return await once.once(principal, work)


@router.get("", response_model=ApiKeyPage, summary="List API keys")
async def list_api_keys(context: ContextDep, principal: Admin, query: Annotated[PageQuery, Query()]) -> Response:
    """Keys that were deleted are left out."""
    after = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        rows = await list_keys(session, after=after, limit=query.limit + 1)
    return page(rows, query.limit, lambda row: id_cursor(row.id), key_document)


@router.delete("/{key_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete an API key")
async def delete_api_key(context: ContextDep, principal: Admin, key_id: UUID) -> Response:
    """It is refused from the next request on."""
    async with context.database.tenant(principal.organisation_id) as session:
        await revoke_key(session, key_id, context.clock)
    return Response(status_code=HTTPStatus.NO_CONTENT)
