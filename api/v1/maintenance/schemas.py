"""Maintenance windows as clients write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

from shared.db.models import MaintenanceWindow
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.maintenance import MaintenanceSpec
from shared.services.maintenance import spec_of

EXAMPLES: dict[str, Any] = {
    "once": {
        "summary": "Once, for two monitors by tag",
        "value": {
            "name": "Database upgrade",
            "tags": {"team": "shop"},
            "starts_at": "2037-02-06T22:00:00Z",
            "ends_at": "2037-02-06T23:30:00Z",
        },
    },
    "recurring": {
        "summary": "Every night, by the clock of Berlin",
        "value": {
            "name": "Nightly backup",
            "all": True,
            "schedule": {"cron": "30 3 * * *", "duration_minutes": 60, "timezone": "Europe/Berlin"},
        },
    },
    "rule": {
        "summary": "The first Sunday of each month",
        "value": {
            "name": "Patch day",
            "all": True,
            "schedule": {
                "rrule": "FREQ=MONTHLY;BYDAY=1SU",
                "first_start": "2027-01-03T04:00:00",
                "duration_minutes": 120,
                "timezone": "America/New_York",
            },
        },
    },
}
WindowStatus = Literal["scheduled", "active", "ended"]


class MaintenanceRead(MaintenanceSpec):
    """A window with its present span, or else its next one."""

    id: UUID
    status: WindowStatus
    next_starts_at: datetime | None
    next_ends_at: datetime | None
    created_at: datetime
    updated_at: datetime


class MaintenancePage(BaseModel):
    items: list[MaintenanceRead]
    next_cursor: str | None


def window_document(window: MaintenanceWindow, now_ms: int) -> dict[str, Any]:
    """A stored window in its public form."""
    spec = spec_of(window)
    span = spec.next_span(now_ms)
    start = span and max(span[0], to_milliseconds(window.planned_from))
    status: WindowStatus = "ended" if start is None else "active" if start <= now_ms else "scheduled"
    return {
        "id": window.id,
        **spec.model_dump(mode="json"),
        "status": status,
        "next_starts_at": None if start is None else to_datetime(start),
        "next_ends_at": span and to_datetime(span[1]),
        "created_at": window.created_at,
        "updated_at": window.updated_at,
    }
