"""``/v1/monitors/{id}/results``."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from api.auth import Reader
from api.context import ContextDep
from api.cursors import read_result_cursor, result_cursor
from api.responses import page
from api.v1.results.schemas import ResultPage, ResultQuery
from shared.services.results import list_results

router = APIRouter(prefix="/v1/monitors/{monitor_id:id}/results", tags=["results"])


@router.get("", response_model=ResultPage, summary="List the results of a monitor")
async def list_monitor_results(
    context: ContextDep, principal: Reader, monitor_id: UUID, query: Annotated[ResultQuery, Query()]
) -> Response:
    """Newest first; results that arrive meanwhile do not shift the pages."""
    before = read_result_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        await context.monitors.view(session, monitor_id)
        items = await list_results(
            session, monitor_id, since=query.since, until=query.until, before=before, limit=query.limit + 1
        )
    return page(items, query.limit, lambda item: result_cursor(item.scheduled_at, item.region), lambda item: item)
