"""``/v1/jobs``: the platform's own jobs, for the organisation that operates this installation."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.auth import Admin, Reader
from api.context import ContextDep
from api.errors import ApiError
from api.idempotency import IdempotencyDep
from api.operator import require_operator
from api.responses import encode, json_response
from api.strict_json import StrictRoute
from api.v1.jobs.schemas import JobPage, JobRun, RunQuery
from shared.jobs.errors import JobNotStartedError
from shared.services.idempotency import Answer
from shared.services.jobs import list_jobs

router = APIRouter(prefix="/v1/jobs", tags=["operations"], route_class=StrictRoute)

JobName = Annotated[str, Path(max_length=63, examples=["audit_slots"])]


@router.get("", response_model=JobPage, summary="List the platform's jobs")
async def list_platform_jobs(context: ContextDep, principal: Reader) -> Response:
    """For the organisation that operates this installation: how each of its own jobs is doing."""
    await require_operator(context, principal)
    async with context.database.system() as session:
        jobs = await list_jobs(session, context.clock)
    return json_response({"items": [job._asdict() for job in jobs], "next_cursor": None})


@router.post("/{name}/run", response_model=JobRun, summary="Run one of the platform's jobs")
async def run_platform_job(
    context: ContextDep,
    principal: Admin,
    once: IdempotencyDep,
    name: JobName,
    query: Annotated[RunQuery, Query()],
) -> Response:
    """Waits for the run and answers what happened; a job that is not due does nothing unless forced."""
    await require_operator(context, principal)

    async def work() -> Answer:
        try:
            outcome = await context.jobs.run(name, forced=query.force)
        except JobNotStartedError as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "job_not_started", str(error)) from error
        return Answer(HTTPStatus.OK.value, encode(outcome))

    return await once.once_slowly(principal, work)
