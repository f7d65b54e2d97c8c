"""Jobs as clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.cursors import QueryParameters
from shared.jobs.outcome import JobStatus

_EXAMPLE: dict[str, Any] = {
    "name": "audit_slots",
    "every_seconds": 60,
    "last_started_at": "2026-11-30T12:00:07Z",
    "last_success_at": "2026-11-30T12:00:07.214Z",
    "last_duration_ms": 207,
    "last_status": "succeeded",
    "last_error": None,
    "processed": 1800,
    "runs": 1440,
    "failures": 0,
    "timeouts": 0,
    "skipped": 2,
    "silent": False,
}


class JobRead(BaseModel):
    """One of the platform's own jobs. A run that was killed counts as a failure when the next one starts."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    name: str
    every_seconds: int
    last_started_at: datetime | None
    last_success_at: datetime | None
    last_duration_ms: int | None
    last_status: Annotated[str | None, Field(description="`running`, or as `status` of a run.")]
    last_error: str | None
    processed: Annotated[int, Field(description="Items that the last run worked on.")]
    runs: int
    failures: int
    timeouts: int
    skipped: Annotated[int, Field(description="Runs that found another one going on.")]
    silent: Annotated[bool, Field(description="It has not succeeded for longer than it may.")]


class JobPage(BaseModel):
    items: list[JobRead]
    next_cursor: str | None


class JobRun(BaseModel):
    """What happened. `not_due` and `skipped` (another run is going on) did nothing."""

    name: str
    status: JobStatus
    duration_ms: int
    processed: int
    error: str | None


class RunQuery(QueryParameters):
    force: Annotated[bool, Field(description="Run it although it is not due.")] = False
