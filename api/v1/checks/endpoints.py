"""Checks that somebody waits for: ``/v1/checks`` and ``/v1/monitors/{id}/check``."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response

from api.auth import Writer
from api.context import Context, ContextDep
from api.errors import invalid
from api.idempotency import IdempotencyDep
from api.openapi import problem
from api.responses import encode
from api.strict_json import StrictRoute
from api.v1.checks.schemas import PREVIEW_EXAMPLE, STEPS_EXAMPLE, Preview
from api.v1.results.schemas import ResultRead
from shared.contracts.documents import document
from shared.contracts.wire import RunNow, RunSpec
from shared.db.repositories.monitors import MonitorView
from shared.services.api_keys import Principal
from shared.services.heartbeats import KIND
from shared.services.idempotency import Answer

_ERRORS: dict[int | str, dict[str, Any]] = {
    429: problem("As many checks of your organisation are running on demand as may."),
    503: problem("No worker serves the region, or a server behind the API does not answer: try again."),
    504: problem("A worker took the check, and its answer did not come in time."),
}
router = APIRouter(prefix="/v1", tags=["checks"], route_class=StrictRoute, responses=_ERRORS)

NewPreview = Annotated[
    Preview,
    Body(
        openapi_examples={
            "http": {"summary": "An HTTP check", "value": PREVIEW_EXAMPLE},
            "http_steps": {"summary": "Log in, order, clean up", "value": {"check": STEPS_EXAMPLE}},
        }
    ),
]
WantedRegion = Annotated[
    str | None, Query(max_length=32, description="One of the monitor's regions; the first when left out.")
]


@router.post("/checks", response_model=ResultRead, summary="Try a check")
async def preview_check(
    context: ContextDep, principal: Writer, once: IdempotencyDep, preview: NewPreview
) -> Response:
    """Runs it now and answers with the result; nothing is stored."""
    request = RunNow(run=context.monitors.run_spec(preview.check, preview), region=preview.region)

    async def work() -> Answer:
        return await _run(context, principal, request)

    return await once.once_slowly(principal, work)


@router.post("/monitors/{monitor_id:id}/check", response_model=ResultRead, summary="Check a monitor now")
async def check_monitor(
    context: ContextDep,
    principal: Writer,
    once: IdempotencyDep,
    monitor_id: UUID,
    region: WantedRegion = None,
) -> Response:
    """Runs the monitor's check at once, beside its schedule, and answers with the result, which is stored too."""
    async with context.database.tenant(principal.organisation_id) as session:
        view = await context.monitors.view(session, monitor_id)
    if view.kind == KIND:
        raise invalid("monitor_id", "a heartbeat is not checked: it reports by itself")
    if region is not None and region not in view.regions:
        raise invalid("region", f"the monitor is checked from {', '.join(view.regions)}")
    request = _request(view, region or view.regions[0])

    async def work() -> Answer:
        return await _run(context, principal, request)

    return await once.once_slowly(principal, work)


def _request(view: MonitorView, region: str) -> RunNow:
    run = RunSpec(view.check_spec, view.timeout_seconds, view.retries, view.retry_delay_seconds)
    return RunNow(run=run, region=region, monitor_id=view.id, revision=view.revision, store=True)


async def _run(context: Context, principal: Principal, request: RunNow) -> Answer:
    with context.runs.slot(principal.organisation_id):
        answer = await context.desk.run(request)
    result = document(
        answer.verdict,
        monitor_id=request.monitor_id,
        region=answer.region,
        slot_ms=answer.slot_ms,
        started_at_ms=answer.started_at_ms,
        trigger="manual",
        revision=request.revision,
    )
    return Answer(200, encode(result))
