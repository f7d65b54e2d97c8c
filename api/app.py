"""The application: routes, errors and limits. Whoever starts it brings what it works with."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline

from api import health as health_routes
from api.body_limit import BodyLimit
from api.context import Context
from api.errors import install_error_handlers
from api.head import HeadAsGet
from api.openapi import complete
from api.ping.endpoints import router as ping
from api.security_headers import SecurityHeaders
from api.v1.alert_policies.endpoints import router as alert_policies
from api.v1.api_keys.endpoints import router as api_keys
from api.v1.certificates.endpoints import router as certificates
from api.v1.channels.endpoints import router as channels
from api.v1.checks.endpoints import router as checks
from api.v1.dead_letters.endpoints import router as dead_letters
from api.v1.incidents.endpoints import router as incidents
from api.v1.jobs.endpoints import router as jobs
from api.v1.maintenance.endpoints import router as maintenance
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
    {"name": "certificates", "description": "What targets showed of themselves, and what of it was new."},
    {"name": "incidents", "description": "When monitors were not well, and what was done about it."},
    {"name": "alerting", "description": "Who is told of incidents, through what, and when."},
    {"name": "maintenance", "description": "When failures are expected."},
    {"name": "heartbeats", "description": "Where jobs tell that they run; no key is needed."},
    {"name": "access", "description": "Your organisation, its members and its API keys."},
    {"name": "operations", "description": "The platform itself, for the organisation that operates it."},
    {"name": "health", "description": "For supervisors and Prometheus; no key is needed."},
]


def create_app(context: Context, health: Health) -> FastAPI:
    """The API over one context; ``health`` adds to ``/readyz`` what runs beside it."""
    app = FastAPIOffline(  # /docs without scripts from elsewhere: it works behind a firewall
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
    app.add_middleware(SecurityHeaders)
    app.add_middleware(HeadAsGet)  # the last one is the first to be asked
    install_error_handlers(app)
    app.include_router(ping)  # first: routes are tried in this order, and no other is asked for so often
    for router in (
        monitors,
        results,
        certificates,
        checks,
        incidents,
        channels,
        alert_policies,
        maintenance,
        api_keys,
        organisation,
        jobs,
        dead_letters,
    ):
        app.include_router(router)
    app.include_router(health_routes.router)
    complete(app)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name
