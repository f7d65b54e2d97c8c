"""``/livez``, ``/readyz`` and ``/metrics``, as every process has them; without a key."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from api.context import ContextDep
from api.responses import JSON
from shared.db.session import Database
from shared.observability.health import Health, report

router = APIRouter(tags=["health"])
_PING_SECONDS = 2.0


@router.get("/livez", summary="Is this process working?")
async def livez(request: Request) -> Response:
    status, body = report(_health(request).liveness())
    return Response(body, status, media_type=JSON)


@router.get("/readyz", summary="Can it serve? Each dependency by name")
async def readyz(request: Request, context: ContextDep) -> Response:
    checks = {"database": await _database_problem(context.database), **_health(request).readiness()}
    status, body = report(checks)
    return Response(body, status, media_type=JSON)


@router.get("/metrics", summary="Metrics for Prometheus")
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
