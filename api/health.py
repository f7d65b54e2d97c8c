"""``/livez``, ``/readyz`` and ``/metrics``, as every process has them; without a key."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

from api.context import ContextDep
from api.responses import JSON
from shared.db.session import Database
from shared.observability.health import Health, report


class HealthRead(BaseModel):
    """`ok`, or what is wrong, of each part by name."""

    status: Literal["ok", "unavailable"]
    checks: Annotated[dict[str, str], Field(examples=[{"database": "ok", "nats": "not connected"}])]


_PING_SECONDS = 2.0
_UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not now.", "model": HealthRead}}
router = APIRouter(tags=["health"])


@router.get("/livez", response_model=HealthRead, responses=_UNAVAILABLE, summary="Is this process working?")
async def livez(request: Request) -> Response:
    status, body = report(_health(request).liveness())
    return Response(body, status, media_type=JSON)


@router.get(
    "/readyz",
    response_model=HealthRead,
    responses=_UNAVAILABLE,
    summary="Can it serve? Each dependency by name",
)
async def readyz(request: Request, context: ContextDep) -> Response:
    checks = {"database": await _database_problem(context.database), **_health(request).readiness()}
    status, body = report(checks)
    return Response(body, status, media_type=JSON)


@router.get("/metrics", response_class=PlainTextResponse, summary="Metrics for Prometheus")
async def metrics() -> Response:
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


def _health(request: Request) -> Health:
    health = request.app.state.health
    assert isinstance(health, Health)
    return health


async def _database_problem(database: Database) -> str | None:
    try:
        async with asyncio.timeout(_PING_SECONDS):
            await database.ping()
    except (TimeoutError, OSError, SQLAlchemyError):
        return "PostgreSQL does not answer"
    return None
