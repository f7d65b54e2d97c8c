"""Results as clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from api.cursors import PageQuery
from shared.domain.errors import CheckError
from shared.domain.moment import Moment
from shared.domain.result import (
    AssertionOutcome,
    DnsFacts,
    Evidence,
    HttpFacts,
    PingFacts,
    ResultStatus,
    StepResult,
    TcpFacts,
    Timings,
    TlsFacts,
)


class ResultQuery(PageQuery):
    """Which results, newest first."""

    since: Annotated[Moment | None, Field(description="Scheduled at this time or later.")] = None
    until: Annotated[Moment | None, Field(description="Scheduled before this time.")] = None


class ResultRead(BaseModel):
    """One slot of one monitor in one region. `missed` says that it was not run, and `error` why."""

    monitor_id: UUID | None
    region: str
    scheduled_at: datetime
    started_at: datetime | None
    status: ResultStatus
    attempts: int
    error: CheckError | None
    timings_ms: Timings
    http: HttpFacts | None
    tls: TlsFacts | None
    tcp: TcpFacts | None
    dns: DnsFacts | None
    ping: PingFacts | None
    evidence: Evidence | None
    steps: list[StepResult]
    assertions: list[AssertionOutcome]
    trigger: Literal["schedule", "manual"]
    revision: int


class ResultPage(BaseModel):
    items: list[ResultRead]
    next_cursor: str | None
