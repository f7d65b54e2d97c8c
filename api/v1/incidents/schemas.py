"""Incidents as clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from pydantic import BaseModel, BeforeValidator, Field

from api.cursors import PageQuery
from api.v1.results.schemas import ResultRead
from shared.db.models import IncidentEvent
from shared.db.repositories.incidents import IncidentView
from shared.domain.checks import Strict
from shared.domain.ids import require_id
from shared.domain.incident import EventKind, IncidentKind, IncidentState, Severity
from shared.services.incident_desk import IncidentStory

_PRINTABLE = r"^[^\x00]*$"
Text = Annotated[str, Field(min_length=1, max_length=5_000, pattern=_PRINTABLE)]

LIST_EXAMPLE: dict[str, Any] = {
    "items": [
        {
            "id": "019a1f0e-6f0a-7cc3-98f5-1d1f7f2a9d10",
            "kind": "monitor",
            "monitor_id": "019a1f0e-0b7a-7e52-8d7c-0c3a2f8be001",
            "monitor_name": "Shop checkout",
            "state": "open",
            "severity": "down",
            "cause": "connect_refused",
            "message": "203.0.113.7:443 refused the connection",
            "started_at": "2027-02-06T22:00:00Z",
            "opened_at": "2027-02-06T22:00:00.700Z",
            "last_failure_at": "2027-02-06T22:03:00Z",
            "acknowledged_at": None,
            "acknowledged_by": None,
            "resolved_at": None,
            "resolved_by": None,
            "reopened": 0,
            "affected_by": None,
            "silent": False,
            "worker": "worker-1",
            "region": "default",
        }
    ],
    "next_cursor": None,
}


class IncidentQuery(PageQuery):
    """Which incidents, newest first. All conditions must hold."""

    state: IncidentState | None = None
    monitor_id: Annotated[UUID | None, BeforeValidator(require_id)] = None


class IncidentRead(BaseModel):
    """A time in which a monitor was not well.

    It starts with the first failure of the run that decided, and is opened when it was decided. `resolved_by` is
    null when the monitor recovered. `affected_by` is the incident that explains this one: of a parent, or of the
    platform. `silent` says that nobody was told of it.
    """

    id: UUID
    kind: IncidentKind
    monitor_id: UUID | None
    monitor_name: Annotated[
        str | None, Field(description="Null for the platform, and once the monitor is deleted.")
    ]
    state: IncidentState
    severity: Severity
    cause: Annotated[
        str, Field(description="An error kind of results; `degraded`; for the platform what it found.")
    ]
    message: str
    started_at: datetime
    opened_at: datetime
    last_failure_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None
    resolved_by: Annotated[str | None, Field(examples=["paused", "deleted", "API key CI"])]
    reopened: int
    affected_by: UUID | None
    silent: bool
    worker: str
    region: str


class IncidentEventRead(BaseModel):
    """One line of the timeline; `told` says whether people were to hear of it."""

    at: datetime
    kind: EventKind
    actor: str | None
    told: bool
    detail: dict[str, Any]


class AffectedRead(BaseModel):
    """An incident that this one explains."""

    id: UUID
    monitor_id: UUID | None
    monitor_name: str | None
    state: IncidentState
    started_at: datetime
    resolved_at: datetime | None


class IncidentDetail(IncidentRead):
    """With the evidence of the deciding and of the last failing attempt, the timeline, and what it explains."""

    first_result: ResultRead | None
    last_result: ResultRead | None
    timeline: list[IncidentEventRead]
    affected: list[AffectedRead]


class IncidentPage(BaseModel):
    items: list[IncidentRead]
    next_cursor: str | None


class Resolution(Strict):
    """Why it is over, for the timeline."""

    note: Text | None = None


class Comment(Strict):
    text: Annotated[Text, Field(examples=["The provider replaced a switch."])]


_FIELDS = tuple(IncidentRead.model_fields)
_AFFECTED = tuple(AffectedRead.model_fields)


def incident_document(view: IncidentView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in _FIELDS}


def story_document(story: IncidentStory) -> dict[str, Any]:
    """An incident in full; results are passed on as they lie in storage."""
    return {
        **incident_document(story.view),
        "first_result": _raw(story.view.first_result),
        "last_result": _raw(story.view.last_result),
        "timeline": [_event_document(event) for event in story.events],
        "affected": [{name: getattr(row, name) for name in _AFFECTED} for row in story.affected],
    }


def _event_document(event: IncidentEvent) -> dict[str, Any]:
    detail = {name: value for name, value in event.detail.items() if name != "tell"}
    told = "tell" in event.detail
    return {"at": event.at, "kind": event.kind, "actor": event.actor, "told": told, "detail": detail}


def _raw(document: str | None) -> msgspec.Raw:
    return msgspec.Raw(b"null" if document is None else document.encode())
