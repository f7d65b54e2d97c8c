"""``/ping/{token}``: where jobs tell that they run. The token is the permission, and is in no log and no error."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import ClientDisconnect

from api.context import Context, ContextDep
from api.errors import problem_response
from api.openapi import problem
from shared.contracts.wire import PingMessage
from shared.db.base import new_id
from shared.domain.heartbeat import MAX_BODY, RUN_ID, is_run_id, read_signal, readable_body
from shared.domain.redaction import hide
from shared.services.heartbeats import token_hash
from shared.services.pings import NotReceivedError

_BODY_SECONDS: Final = 5.0
_MAX_TOKEN: Final = 100
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The ping is stored.", "content": {"text/plain": {"example": "OK"}}},
    400: problem("The run id is none."),
    404: problem("No monitor has this address."),
    503: problem("The ping could not be stored: send it again."),
}
router = APIRouter(tags=["heartbeats"], responses=_ANSWERS)

RunId = Annotated[
    str | None,
    Query(
        description="Names one run, so that runs may overlap: 1 to 64 letters, digits or `._:-`.",
        examples=["42"],
        json_schema_extra={"anyOf": [{"type": "string", "pattern": RUN_ID}]},
    ),
]


@router.head("/ping/{token}", include_in_schema=False)
@router.get("/ping/{token}", response_class=PlainTextResponse, summary="Tell that the job ran")
async def ping(context: ContextDep, request: Request, token: str, rid: RunId = None) -> Response:
    """For `curl -m 10 --retry 5`. It works with GET, HEAD and POST alike."""
    return await _receive(context, request, token, "", rid)


@router.post("/ping/{token}", response_class=PlainTextResponse, summary="Tell that the job ran, with its output")
async def ping_with_body(context: ContextDep, request: Request, token: str, rid: RunId = None) -> Response:
    """The first 10 kB of the body are kept as evidence, whatever its type."""
    return await _receive(context, request, token, "", rid)


@router.head("/ping/{token}/{signal}", include_in_schema=False)
@router.get("/ping/{token}/{signal}", response_class=PlainTextResponse, summary="Tell what the job does")
async def signal(context: ContextDep, request: Request, token: str, signal: str, rid: RunId = None) -> Response:
    """`signal` is `start`, `success`, `fail`, `log`, or the exit code of the job: 0 to 255, where 0 is success."""
    return await _receive(context, request, token, signal, rid)


@router.post(
    "/ping/{token}/{signal}", response_class=PlainTextResponse, summary="Tell what the job does, with its output"
)
async def signal_with_body(
    context: ContextDep, request: Request, token: str, signal: str, rid: RunId = None
) -> Response:
    """The first 10 kB of the body are kept as evidence, whatever its type."""
    return await _receive(context, request, token, signal, rid)


async def _receive(context: Context, request: Request, token: str, word: str, run_id: str | None) -> Response:
    received_ms = context.clock.now_ms()
    meaning = read_signal(word)
    if meaning is None or len(token) > _MAX_TOKEN or context.pings is None:
        return _unknown()
    if run_id is not None and not is_run_id(run_id):
        detail = "rid: a run id has 1 to 64 letters, digits or ._:-"
        return problem_response(HTTPStatus.BAD_REQUEST, "validation_failed", detail)
    body = readable_body(await _beginning_of_body(request)) if request.method == "POST" else None
    message = PingMessage(
        id=new_id(),
        token_hash=token_hash(token),
        received_ms=received_ms,
        signal=meaning[0],
        exit_code=meaning[1],
        run_id=run_id,
        body=body and hide(body, (token,)),
    )
    try:
        is_known = await context.pings.receive(message)
    except NotReceivedError as error:
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, error.code, str(error))
    return PlainTextResponse("OK") if is_known else _unknown()


def _unknown() -> Response:
    return problem_response(HTTPStatus.NOT_FOUND, "not_found", "no heartbeat has this address")


async def _beginning_of_body(request: Request) -> bytes:
    """As much of the body as is kept; a job whose output is long, slow or cut off has pinged all the same."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) >= MAX_BODY:
                    break
    except (TimeoutError, ClientDisconnect):
        pass
    return body
