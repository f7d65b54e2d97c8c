"""``/v1/maintenance-windows``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import ContextDep
from api.cursors import PageQuery, id_cursor, read_id_cursor
from api.idempotency import IdempotencyDep
from api.openapi import LOCATION, patch_body
from api.responses import encode, json_response, page
from api.strict_json import StrictRoute
from api.v1.maintenance.schemas import (
    EXAMPLES,
    MaintenancePage,
    MaintenanceRead,
    window_document,
)
from shared.domain.maintenance import MaintenanceSpec
from shared.services.idempotency import Answer

router = APIRouter(prefix="/v1/maintenance-windows", tags=["maintenance"], route_class=StrictRoute)


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=LOCATION,
    response_model=MaintenanceRead,
    summary="Create a maintenance window",
)
async def create_maintenance_window(
    context: ContextDep,
    principal: Writer,
    once: IdempotencyDep,
    spec: Annotated[MaintenanceSpec, Body(openapi_examples=EXAMPLES)],
) -> Response:
    """Inside it nobody is told of failures, and its time is in no uptime. It never reaches back before now."""

    async def work(session: AsyncSession) -> Answer:
        window = await context.maintenance.create(session, principal.organisation_id, spec)
        headers = {"Location": f"{router.prefix}/{window.id}"}
        return Answer(HTTPStatus.CREATED, encode(window_document(window, context.clock.now_ms())), headers)

    return await once.once(principal, work)


@router.get("", response_model=MaintenancePage, summary="List maintenance windows")
async def list_maintenance_windows(
    context: ContextDep, principal: Reader, query: Annotated[PageQuery, Query()]
) -> Response:
    """In the order of their creation, those that are over included."""
    after = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        windows = await context.maintenance.windows(session, after=after, limit=query.limit + 1)
    now_ms = context.clock.now_ms()
    return page(
        windows, query.limit, lambda window: id_cursor(window.id), lambda window: window_document(window, now_ms)
    )


@router.get("/{window_id:id}", response_model=MaintenanceRead, summary="Read a maintenance window")
async def get_maintenance_window(context: ContextDep, principal: Reader, window_id: UUID) -> Response:
    async with context.database.tenant(principal.organisation_id) as session:
        window = await context.maintenance.get(session, window_id)
    return json_response(window_document(window, context.clock.now_ms()))


@router.patch(
    "/{window_id:id}",
    response_model=MaintenanceRead,
    summary="Change a maintenance window",
    openapi_extra=patch_body(MaintenanceSpec, "MaintenancePatch", {"ends_at": "2037-02-06T23:00:00Z"}),
)
async def change_maintenance_window(
    context: ContextDep, principal: Writer, window_id: UUID, patch: Annotated[dict[str, Any], Body()]
) -> Response:
    """Fields you leave out stay as they are; `null` puts a field back to its default.

    What an open window silenced so far stays silenced; from now on the new form counts. `ends_at` in the past
    ends it now.
    """
    async with context.database.tenant(principal.organisation_id) as session:
        window = await context.maintenance.change(session, window_id, patch)
        document = window_document(window, context.clock.now_ms())
    return json_response(document)


@router.delete("/{window_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a maintenance window")
async def delete_maintenance_window(context: ContextDep, principal: Writer, window_id: UUID) -> Response:
    """One that is open ends now."""
    async with context.database.tenant(principal.organisation_id) as session:
        await context.maintenance.delete(session, window_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)
