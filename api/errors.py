"""Every error a client can see, as ``application/problem+json`` (RFC 9457) with a stable ``code``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match

from api.responses import json_response
from shared.db.availability import is_unavailable
from shared.services.errors import (
    IdempotencyConflictError,
    IncidentResolvedError,
    InvalidInputError,
    NotFoundError,
    NoWorkerError,
    Problem,
    QueueUnavailableError,
    ReplayNotPossibleError,
    RevisionMismatchError,
    RunTimeoutError,
    ServiceError,
    TooManyRunsError,
)

log = structlog.get_logger(__name__)
MEDIA_TYPE = "application/problem+json"

_STATUSES: dict[type[ServiceError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    RevisionMismatchError: HTTPStatus.PRECONDITION_FAILED,
    IdempotencyConflictError: HTTPStatus.CONFLICT,
    IncidentResolvedError: HTTPStatus.CONFLICT,
    InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooManyRunsError: HTTPStatus.TOO_MANY_REQUESTS,
    NoWorkerError: HTTPStatus.SERVICE_UNAVAILABLE,
    RunTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    ReplayNotPossibleError: HTTPStatus.CONFLICT,
    QueueUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_RETRY_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_RETRY_AFTER_SECONDS = "5"
_NOTHING_HERE = "there is no such address; an id is written as in 019a7f3e-5b1c-7c2d-8e4f-0a1b2c3d4e5f"


_EXAMPLE: dict[str, Any] = {
    "title": "Unprocessable Entity",
    "status": 422,
    "code": "validation_failed",
    "detail": "interval_seconds: Input should be greater than or equal to 5",
    "errors": [{"field": "interval_seconds", "reason": "Input should be greater than or equal to 5"}],
}


class FieldProblem(BaseModel):
    """One wrong field: its dotted path, and what is wrong with it."""

    field: str
    reason: str


class ProblemDocument(BaseModel):
    """What is wrong. Programs should look at ``code``, which never changes; ``detail`` is for people."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldProblem] = []


class ApiError(HTTPException):
    """An error that the API itself finds, before any use case runs."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code, self.problems = code, problems


def invalid(field: str, reason: str) -> ApiError:
    """A 422 about one field."""
    problem = Problem(field, reason)
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, InvalidInputError.code, str(problem), [problem])


def install_error_handlers(app: FastAPI) -> None:
    """Map what may be raised while a request is served; nothing else decides on an error's form."""
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(SQLAlchemyError, _database_error)
    app.add_exception_handler(OSError, _database_error)
    app.add_exception_handler(Exception, _unexpected_error)


def problem_response(
    status: HTTPStatus,
    code: str,
    detail: str,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The one form that errors have."""
    document: dict[str, Any] = {"title": status.phrase, "status": status.value, "code": code, "detail": detail}
    if problems:
        document["errors"] = [asdict(problem) for problem in problems]
    extra = {"Retry-After": _RETRY_AFTER_SECONDS} if status in _RETRY_LATER else {}
    return json_response(document, status, {**extra, **(headers or {})}, media_type=MEDIA_TYPE)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    status = HTTPStatus(error.status_code)
    if isinstance(error, ApiError):
        return problem_response(status, error.code, error.detail, error.problems, error.headers)
    if status is HTTPStatus.NOT_FOUND:
        return problem_response(status, status.name.lower(), _NOTHING_HERE)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        return problem_response(status, status.name.lower(), str(error.detail), headers=_allowed(request))
    return problem_response(status, status.name.lower(), str(error.detail), headers=error.headers)


def _allowed(request: Request) -> dict[str, str]:
    """All methods of this address: several routes may share it, and each knows its own ones only."""
    found = [method for method in _METHODS if _is_served(request, "GET" if method == "HEAD" else method)]
    return {"Allow": ", ".join(found)}


def _is_served(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


async def _invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The first part says where the field was (body, query, path, header); its name says that as well.
    found = [{**item, "loc": item["loc"][1:]} for item in error.errors()]
    return await _service_error(_, InvalidInputError.of(found))


async def _service_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    problems = error.problems if isinstance(error, InvalidInputError) else ()
    return problem_response(_STATUSES[type(error)], error.code, str(error), problems)


async def _database_error(request: Request, error: Exception) -> Response:
    if not is_unavailable(error):
        return await _unexpected_error(request, error)
    log.warning("database unavailable", path=_path(request), error=str(error).partition("\n")[0])
    return problem_response(
        HTTPStatus.SERVICE_UNAVAILABLE, "database_unavailable", "the database does not answer: try again"
    )


async def _unexpected_error(request: Request, error: Exception) -> Response:
    log.error("request failed", method=request.method, path=_path(request), exc_info=error)
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", "the server made a mistake; it is in its log"
    )


def _path(request: Request) -> str:
    """The path for a log; that of a ping ends in its secret."""
    path = request.url.path
    return "/ping/…" if path.startswith("/ping/") else path
