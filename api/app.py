"""The application: routes, errors and limits. Whoever starts it brings what it works with."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from api import health as health_routes
from api.body_limit import BodyLimit
from api.context import Context
from api.errors import MEDIA_TYPE, ProblemDocument, install_error_handlers
from api.v1.api_keys.endpoints import router as api_keys
from api.v1.checks.endpoints import router as checks
from api.v1.monitors.endpoints import router as monitors
from api.v1.organisation.endpoints import router as organisation
from api.v1.results.endpoints import router as results
from shared.observability.health import Health

_DESCRIPTION = """
Every due check is run or accounted for.

Send your API key as `Authorization: Bearer tcs_…`. Times are RFC 3339 in UTC, ids are UUIDv7, lists answer
`{"items": […], "next_cursor": …}`. Errors are `application/problem+json` with a stable `code`.
"""
_TAGS = [
    {"name": "monitors", "description": "What is checked, how often, and where it stands."},
    {"name": "checks", "description": "Checks that run at once, while you wait."},
    {"name": "results", "description": "What each check showed."},
    {"name": "access", "description": "Your organisation, its members and its API keys."},
    {"name": "health", "description": "For supervisors and Prometheus; no key is needed."},
]


def create_app(context: Context, health: Health) -> FastAPI:
    """The API over one context; ``health`` adds to ``/readyz`` what runs beside it."""
    app = FastAPI(
        title="Tocsin",
        version=version("tocsin"),
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.context, app.state.health = context, health
    app.add_middleware(BodyLimit)
    install_error_handlers(app)
    for router in (monitors, results, checks, api_keys, organisation):
        app.include_router(router, responses=_PROBLEMS)
    app.include_router(health_routes.router)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    return {"description": description, "model": ProblemDocument, "content": {MEDIA_TYPE: {"schema": schema}}}


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: _problem("No API key, or one that is unknown, revoked or expired."),
    403: _problem("The key lacks the scope."),
    404: _problem("Nothing with this id in your organisation."),
    422: _problem("A field is wrong; `errors` names it."),
}
