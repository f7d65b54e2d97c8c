"""``/v1/monitors``."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Header, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import Context, ContextDep
from api.cursors import id_cursor, read_id_cursor
from api.errors import invalid
from api.idempotency import IdempotencyDep
from api.openapi import ETAG, LOCATION, patch_body
from api.responses import encode, page
from api.strict_json import StrictRoute
from api.v1.checks.schemas import STEPS_EXAMPLE
from api.v1.monitors.schemas import (
    EXAMPLE,
    MonitorPage,
    MonitorQuery,
    MonitorRead,
    monitor_document,
)
from shared.domain.monitor import MonitorSpec
from shared.services.api_keys import Principal, Scope
from shared.services.idempotency import Answer

router = APIRouter(prefix="/v1/monitors", tags=["monitors"], route_class=StrictRoute)

NewMonitor = Annotated[
    MonitorSpec,
    Body(
        openapi_examples={
            "http": {"summary": "An HTTP check", "value": EXAMPLE},
            "http_steps": {
                "summary": "Log in, order, clean up",
                "value": {"name": "An order", "interval_seconds": 300, "check": STEPS_EXAMPLE},
            },
        }
    ),
]
_ETAG = re.compile(r'(?:W/)?"([0-9]{1,18})"')
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="`ETag` of the monitor as you read it: refuses to overwrite a newer one.",
        examples=['"3"'],
    ),
]


_READ: dict[int | str, dict[str, Any]] = {200: {"headers": ETAG}}
_CREATED: dict[int | str, dict[str, Any]] = {201: {"headers": {**LOCATION[201]["headers"], **ETAG}}}


@router.post(
    "", status_code=HTTPStatus.CREATED, responses=_CREATED, response_model=MonitorRead, summary="Create a monitor"
)
async def create_monitor(
    context: ContextDep, principal: Writer, once: IdempotencyDep, spec: NewMonitor
) -> Response:
    """The monitor is checked at once, and then every `interval_seconds`."""

    async def work(session: AsyncSession) -> Answer:
        monitor_id = await context.monitors.create(session, principal.organisation_id, spec)
        return await _answer(context, session, principal, monitor_id, HTTPStatus.CREATED)

    return _committed(context, await once.once(principal, work))


@router.get("", response_model=MonitorPage, summary="List monitors")
async def list_monitors(
    context: ContextDep, principal: Reader, query: Annotated[MonitorQuery, Query()]
) -> Response:
    """In the order of their creation: a monitor created meanwhile appears on the last page."""
    after = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        views = await context.monitors.views(session, query.filter, after=after, limit=query.limit + 1)
    now_ms = context.clock.now_ms()
    return page(
        views,
        query.limit,
        lambda view: id_cursor(view.id),
        lambda view: monitor_document(view, context.sealer, now_ms, context.regions, may_ping=_may_ping(principal)),
    )


@router.get("/{monitor_id:id}", response_model=MonitorRead, responses=_READ, summary="Read a monitor")
async def get_monitor(context: ContextDep, principal: Reader, monitor_id: UUID) -> Response:
    """The `ETag` names its revision, for `If-Match` of a change."""
    async with context.database.tenant(principal.organisation_id) as session:
        return await _monitor(context, session, principal, monitor_id)


@router.patch(
    "/{monitor_id:id}",
    response_model=MonitorRead,
    summary="Change a monitor",
    responses=_READ,
    openapi_extra=patch_body(MonitorSpec, "MonitorPatch", {"interval_seconds": 30}),
)
async def change_monitor(
    context: ContextDep,
    principal: Writer,
    monitor_id: UUID,
    patch: Annotated[dict[str, Any], Body()],
    if_match: IfMatch = None,
) -> Response:
    """Fields you leave out stay as they are; `null` puts a field back to its default; `check` is replaced whole.

    A secret that is written back as `********` stays as it is stored.
    """
    revisions = _revisions(if_match)
    async with context.database.tenant(principal.organisation_id) as session:
        await context.monitors.change(session, monitor_id, patch, revisions)
        response = await _monitor(context, session, principal, monitor_id)
    return _committed(context, response)


@router.delete("/{monitor_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a monitor")
async def delete_monitor(context: ContextDep, principal: Writer, monitor_id: UUID) -> Response:
    """Its checks stop; its results can no longer be read."""
    async with context.database.tenant(principal.organisation_id) as session:
        await context.monitors.delete(session, monitor_id)
    return _committed(context, Response(status_code=HTTPStatus.NO_CONTENT))


@router.post("/{monitor_id:id}/pause", response_model=MonitorRead, summary="Pause a monitor")
async def pause_monitor(context: ContextDep, principal: Writer, once: IdempotencyDep, monitor_id: UUID) -> Response:
    """No check is due until it is resumed; pausing twice changes nothing."""

    async def work(session: AsyncSession) -> Answer:
        await context.monitors.pause(session, monitor_id)
        return await _answer(context, session, principal, monitor_id)

    return _committed(context, await once.once(principal, work))


@router.post("/{monitor_id:id}/resume", response_model=MonitorRead, summary="Resume a monitor")
async def resume_monitor(
    context: ContextDep, principal: Writer, once: IdempotencyDep, monitor_id: UUID
) -> Response:
    """It is checked at once, and `pending` until then."""

    async def work(session: AsyncSession) -> Answer:
        await context.monitors.resume(session, monitor_id)
        return await _answer(context, session, principal, monitor_id)

    return _committed(context, await once.once(principal, work))


async def _answer(
    context: Context,
    session: AsyncSession,
    principal: Principal,
    monitor_id: UUID,
    status: HTTPStatus = HTTPStatus.OK,
) -> Answer:
    view = await context.monitors.view(session, monitor_id)
    now_ms, may_ping = context.clock.now_ms(), _may_ping(principal)
    document = monitor_document(view, context.sealer, now_ms, context.regions, may_ping=may_ping)
    headers = {"ETag": f'"{view.revision}"'}
    if status is HTTPStatus.CREATED:
        headers["Location"] = f"{router.prefix}/{monitor_id}"
    return Answer(status.value, encode(document), headers)


async def _monitor(context: Context, session: AsyncSession, principal: Principal, monitor_id: UUID) -> Response:
    answer = await _answer(context, session, principal, monitor_id)
    return Response(answer.body, headers=answer.headers, media_type="application/json")


def _may_ping(principal: Principal) -> bool:
    return Scope.WRITE in principal.scopes


def _committed(context: Context, response: Response) -> Response:
    context.on_commit()
    return response


def _revisions(if_match: str | None) -> list[int] | None:
    """The revisions that ``If-Match`` accepts, None for any. Proxies that compress weaken tags: those count too."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = [_ETAG.fullmatch(tag.strip()) for tag in if_match.split(",")]
    if not all(found):
        raise invalid("If-Match", 'give an ETag of this monitor, such as "3", or *')
    return [int(tag[1]) for tag in found if tag]
