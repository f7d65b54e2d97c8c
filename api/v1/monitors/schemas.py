"""The monitor as clients write and read it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from pydantic import BaseModel, Field

from api.context import Regions
from api.cursors import PageQuery
from api.v1.results.schemas import ResultRead
from shared.contracts.sealing import MASK, Sealer
from shared.db.repositories.monitors import MonitorFilter, MonitorView
from shared.domain.checks import CheckKind
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.monitor import MonitorSpec
from shared.domain.slots import Cadence, next_slot_ms
from shared.domain.state import MonitorStatus

EXAMPLE: dict[str, Any] = {
    "name": "Shop checkout",
    "interval_seconds": 60,
    "timeout_seconds": 10,
    "regions": ["default"],
    "tags": {"team": "shop"},
    "retries": 1,
    "retry_delay_seconds": 3,
    "check": {
        "kind": "http",
        "url": "https://shop.example/health",
        "auth": {"kind": "bearer", "token": "eyJhbGciOi"},
        "assertions": [
            {"source": "body", "operator": "contains", "value": "ready"},
            {"source": "response_time_ms", "operator": "lt", "value": 800, "severity": "degraded"},
        ],
    },
}
_PRINTABLE = r"^[^\x00-\x1f]+$"


class MonitorQuery(PageQuery):
    """What to list. All conditions must hold."""

    status: MonitorStatus | None = None
    kind: CheckKind | None = None
    tag: Annotated[
        str | None, Field(max_length=400, pattern=_PRINTABLE, description="`name`, or `name:value`.")
    ] = None
    q: Annotated[
        str | None,
        Field(max_length=200, pattern=_PRINTABLE, description="Part of the name, URL or host, in any case."),
    ] = None

    @property
    def filter(self) -> MonitorFilter:
        return MonitorFilter(self.status and self.status.value, self.kind, self.tag, self.q)


class HeartbeatRead(BaseModel):
    """Where the job pings. Whoever has the token can ping, so a key of scope `read` sees a mask."""

    token: str
    ping_path: Annotated[str, Field(examples=["/ping/iY7…"])]


class MonitorRead(MonitorSpec):
    """A monitor with where it stands. Secrets read `********`; writing that back keeps them."""

    id: UUID
    status: MonitorStatus
    status_since: datetime
    last_result: ResultRead | None
    next_check_at: datetime | None
    created_at: datetime
    updated_at: datetime
    revision: int
    heartbeat: HeartbeatRead | None = None
    warnings: Annotated[
        list[str],
        Field(
            description="What keeps it from being checked right now, for people to read.",
            examples=[["no worker serves region 'eu', so nothing is checked there; served are: default"]],
        ),
    ] = []


class MonitorPage(BaseModel):
    items: list[MonitorRead]
    next_cursor: str | None


_SPEC_FIELDS = tuple(name for name in MonitorSpec.model_fields if name != "check")
_NULL = msgspec.Raw(b"null")


def monitor_document(
    view: MonitorView, sealer: Sealer, now_ms: int, regions: Regions, *, may_ping: bool
) -> dict[str, Any]:
    """A stored monitor in its public form; the last result is passed on as it lies in storage."""
    paused = view.paused_at is not None
    is_run = not paused and view.ping_token is None
    last_result = view.last_result
    return {
        "id": view.id,
        **{name: getattr(view, name) for name in _SPEC_FIELDS},
        "check": sealer.masked(view.check_spec),
        "status": view.status,
        "status_since": view.status_since,
        "last_result": _NULL if last_result is None else msgspec.Raw(last_result.encode()),
        "next_check_at": None if paused else _next_check(view, now_ms),
        "created_at": view.created_at,
        "updated_at": view.updated_at,
        "revision": view.revision,
        "heartbeat": _heartbeat(view, sealer, may_ping=may_ping),
        "warnings": regions.warnings(view.regions) if is_run else [],
    }


def _heartbeat(view: MonitorView, sealer: Sealer, *, may_ping: bool) -> dict[str, str] | None:
    if view.ping_token is None:
        return None
    token = sealer.decrypt(view.ping_token.encode()).decode() if may_ping else MASK
    return {"token": token, "ping_path": f"/ping/{token}"}


def _next_check(view: MonitorView, now_ms: int) -> datetime | None:
    """When something happens next; for a heartbeat, when it is down unless it pings before."""
    if view.starts_at is None:
        deadline: datetime | None = view.next_deadline_at
        return deadline
    cadence = Cadence(view.id, view.interval_seconds * 1000, to_milliseconds(view.starts_at))
    return to_datetime(next_slot_ms(cadence, now_ms))
