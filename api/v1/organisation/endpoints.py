"""``/v1/organisation`` and ``/v1/members``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.auth import Admin, Reader
from api.context import ContextDep
from api.cursors import PageQuery, id_cursor, read_id_cursor
from api.responses import json_response, page
from api.strict_json import StrictRoute
from api.v1.organisation.schemas import (
    MemberPage,
    OrganisationPatch,
    OrganisationRead,
    organisation_document,
)
from shared.services.organisations import get_organisation, list_members, rename_organisation

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictRoute)


@router.get("/organisation", response_model=OrganisationRead, summary="Read your organisation")
async def read_organisation(context: ContextDep, principal: Reader) -> Response:
    async with context.database.tenant(principal.organisation_id) as session:
        return json_response(organisation_document(await get_organisation(session, principal.organisation_id)))


@router.patch("/organisation", response_model=OrganisationRead, summary="Rename your organisation")
async def change_organisation(context: ContextDep, principal: Admin, patch: OrganisationPatch) -> Response:
    async with context.database.tenant(principal.organisation_id) as session:
        organisation = await rename_organisation(session, principal.organisation_id, patch.name)
    return json_response(organisation_document(organisation))


@router.get("/members", response_model=MemberPage, summary="List the members of your organisation")
async def list_organisation_members(
    context: ContextDep, principal: Reader, query: Annotated[PageQuery, Query()]
) -> Response:
    after = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        members = await list_members(session, after=after, limit=query.limit + 1)
    return page(members, query.limit, lambda member: id_cursor(member.id), lambda member: member._asdict())
