"""``/v1/incidents``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import Context, ContextDep
from api.cursors import id_cursor, read_id_cursor
from api.idempotency import IdempotencyDep
from api.responses import encode, json_response, page
from api.strict_json import StrictRoute
from api.v1.incidents.schemas import (
    LIST_EXAMPLE,
    Comment,
    IncidentDetail,
    IncidentPage,
    IncidentQuery,
    Resolution,
    incident_document,
    story_document,
)
from shared.services.idempotency import Answer
from shared.services.incident_desk import IncidentDesk

router = APIRouter(prefix="/v1/incidents", tags=["incidents"], route_class=StrictRoute)

_PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"example": LIST_EXAMPLE}}}}
NewComment = Annotated[Comment, Body()]


@router.get("", response_model=IncidentPage, responses=_PAGE, summary="List incidents")
async def list_incidents(
    context: ContextDep, principal: Reader, query: Annotated[IncidentQuery, Query()]
) -> Response:
    """Newest first; incidents that are opened meanwhile do not shift the pages."""
    before = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        views = await IncidentDesk(context.clock).views(
            session, state=query.state, monitor_id=query.monitor_id, before=before, limit=query.limit + 1
        )
    return page(views, query.limit, lambda view: id_cursor(view.id), incident_document)


@router.get("/{incident_id:id}", response_model=IncidentDetail, summary="Read an incident")
async def get_incident(context: ContextDep, principal: Reader, incident_id: UUID) -> Response:
    """With its evidence, its timeline, and the incidents that it explains."""
    async with context.database.tenant(principal.organisation_id) as session:
        story = await IncidentDesk(context.clock).story(session, incident_id)
    return json_response(story_document(story))


@router.post("/{incident_id:id}/acknowledge", response_model=IncidentDetail, summary="Acknowledge an incident")
async def acknowledge_incident(
    context: ContextDep, principal: Writer, once: IdempotencyDep, incident_id: UUID
) -> Response:
    """Somebody is on it: the escalation stops. Acknowledging twice changes nothing; a resolved one answers 409."""

    async def work(session: AsyncSession) -> Answer:
        await IncidentDesk(context.clock).acknowledge(session, incident_id, principal.key_id)
        return await _answer(context, session, incident_id)

    return await once.once(principal, work)


@router.post("/{incident_id:id}/resolve", response_model=IncidentDetail, summary="Resolve an incident")
async def resolve_incident(
    context: ContextDep,
    principal: Writer,
    once: IdempotencyDep,
    incident_id: UUID,
    resolution: Annotated[Resolution | None, Body()] = None,
) -> Response:
    """End it by hand. No other incident is opened while the monitor goes on failing: only after it was well."""
    note = resolution.note if resolution else None

    async def work(session: AsyncSession) -> Answer:
        await IncidentDesk(context.clock).resolve(session, incident_id, principal.key_id, note)
        return await _answer(context, session, incident_id)

    return await once.once(principal, work)


@router.post(
    "/{incident_id:id}/comments",
    status_code=HTTPStatus.CREATED,
    response_model=IncidentDetail,
    summary="Comment on an incident",
)
async def comment_on_incident(
    context: ContextDep, principal: Writer, once: IdempotencyDep, incident_id: UUID, comment: NewComment
) -> Response:
    """For the timeline; nobody is told."""

    async def work(session: AsyncSession) -> Answer:
        await IncidentDesk(context.clock).comment(session, incident_id, principal.key_id, comment.text)
        return await _answer(context, session, incident_id, HTTPStatus.CREATED)

    return await once.once(principal, work)


async def _answer(
    context: Context, session: AsyncSession, incident_id: UUID, status: HTTPStatus = HTTPStatus.OK
) -> Answer:
    story = await IncidentDesk(context.clock).story(session, incident_id)
    return Answer(status.value, encode(story_document(story)))
