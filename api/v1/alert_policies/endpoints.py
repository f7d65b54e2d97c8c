"""``/v1/alert-policies``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import ContextDep
from api.cursors import PageQuery, policy_cursor, read_policy_cursor
from api.idempotency import IdempotencyDep
from api.openapi import LOCATION, patch_body
from api.responses import encode, json_response, page
from api.strict_json import StrictRoute
from api.v1.alert_policies.schemas import (
    EXAMPLE,
    AlertPolicyPage,
    AlertPolicyRead,
    DefaultPolicyRead,
    default_document,
    policy_document,
)
from shared.domain.alert_policy import AlertPolicySpec
from shared.services.idempotency import Answer

router = APIRouter(prefix="/v1/alert-policies", tags=["alerting"], route_class=StrictRoute)

NewPolicy = Annotated[
    AlertPolicySpec, Body(openapi_examples={"night": {"summary": "Quiet nights", "value": EXAMPLE}})
]


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=LOCATION,
    response_model=AlertPolicyRead,
    summary="Create an alert policy",
)
async def create_alert_policy(
    context: ContextDep, principal: Writer, once: IdempotencyDep, spec: NewPolicy
) -> Response:
    """Incidents that open from now on follow it, if it is the first that matches."""

    async def work(session: AsyncSession) -> Answer:
        policy = await context.alert_policies.create(session, principal.organisation_id, spec)
        known = await context.alert_policies.channels(session, principal.organisation_id)
        headers = {"Location": f"{router.prefix}/{policy.id}"}
        return Answer(HTTPStatus.CREATED.value, encode(policy_document(policy, known)), headers)

    return await once.once(principal, work)


@router.get("", response_model=AlertPolicyPage, summary="List alert policies")
async def list_alert_policies(
    context: ContextDep, principal: Reader, query: Annotated[PageQuery, Query()]
) -> Response:
    """In the order in which they are asked whether they match."""
    after = read_policy_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        rows = await context.alert_policies.list(session, after=after, limit=query.limit + 1)
        known = await context.alert_policies.channels(session, principal.organisation_id)
    return page(
        rows,
        query.limit,
        lambda row: policy_cursor(row.priority, row.id),
        lambda row: policy_document(row, known),
    )


@router.get("/default", response_model=DefaultPolicyRead, summary="Read the default policy")
async def get_default_policy(context: ContextDep, principal: Reader) -> Response:
    """Every channel with `default: true`, at once: what counts where no policy of yours matches."""
    async with context.database.tenant(principal.organisation_id) as session:
        known = await context.alert_policies.channels(session, principal.organisation_id)
    return json_response(default_document(known))


@router.get("/{policy_id:id}", response_model=AlertPolicyRead, summary="Read an alert policy")
async def get_alert_policy(context: ContextDep, principal: Reader, policy_id: UUID) -> Response:
    """`working` is false when nobody would hear of an incident."""
    async with context.database.tenant(principal.organisation_id) as session:
        policy = await context.alert_policies.get(session, policy_id)
        known = await context.alert_policies.channels(session, principal.organisation_id)
    return json_response(policy_document(policy, known))


@router.patch(
    "/{policy_id:id}",
    response_model=AlertPolicyRead,
    summary="Change an alert policy",
    openapi_extra=patch_body(AlertPolicySpec, "AlertPolicyPatch", {"reminder_seconds": 1800}),
)
async def change_alert_policy(
    context: ContextDep, principal: Writer, policy_id: UUID, patch: Annotated[dict[str, Any], Body()]
) -> Response:
    """Fields you leave out stay; `null` puts a field back to its default. Open incidents follow the change too."""
    async with context.database.tenant(principal.organisation_id) as session:
        policy = await context.alert_policies.change(session, policy_id, patch)
        known = await context.alert_policies.channels(session, principal.organisation_id)
    return json_response(policy_document(policy, known))


@router.delete("/{policy_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete an alert policy")
async def delete_alert_policy(context: ContextDep, principal: Writer, policy_id: UUID) -> Response:
    """Open incidents that follow it go on by the default policy."""
    async with context.database.tenant(principal.organisation_id) as session:
        await context.alert_policies.delete(session, policy_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)
