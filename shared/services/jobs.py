"""The platform's jobs as people look at them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import JobState
from shared.db.repositories import jobs as repository
from shared.domain.clock import Clock
from shared.jobs.silence import silence_of


class JobView(NamedTuple):
    """A job as clients read it."""

    name: str
    every_seconds: int
    last_started_at: datetime | None
    last_success_at: datetime | None
    last_duration_ms: int | None
    last_status: str | None
    last_error: str | None
    processed: int
    runs: int
    failures: int
    timeouts: int
    skipped: int
    silent: bool


async def list_jobs(session: AsyncSession, clock: Clock) -> Sequence[JobView]:
    """All jobs, by name; for system sessions."""
    return [_view(job, clock.now_ms()) for job in await repository.list_all(session)]


def _view(job: JobState, now_ms: int) -> JobView:
    stored = {name: getattr(job, name) for name in JobView._fields if name != "silent"}
    return JobView(**stored, silent=silence_of(job, now_ms) is not None)
