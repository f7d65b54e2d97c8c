"""Silence of jobs, seen from outside of the processes that run them: the dead can't report their own death."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.db.models import JobState
from shared.db.repositories import jobs as repository
from shared.db.session import Database
from shared.domain.clock import Clock, to_milliseconds
from shared.messaging.cancellation import is_cancelled
from shared.observability import metrics

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 5.0
REPEAT_SECONDS: Final = 600.0
LONGEST_START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Silence:
    """``since`` is the last success, or the registration of a job that never had one."""

    job: str
    since: datetime
    silence_after_seconds: int


def silence_of(job: JobState, now_ms: int) -> Silence | None:
    """The silence of a job, or None while it succeeds often enough."""
    since = job.last_success_at or job.registered_at
    if now_ms - to_milliseconds(since) <= job.silence_after_seconds * 1000:
        return None
    return Silence(job.name, since, job.silence_after_seconds)


class SilenceMonitor:
    """Compares each job's last success with its ``silence_after``; ``silent`` holds, by job, what it saw last."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._started = clock.monotonic()
        self._told: dict[str, float] = {}
        self.silent: dict[str, Silence] = {}

    async def run(self) -> None:
        """Look every five seconds, until cancelled."""
        while not is_cancelled():
            try:
                await self.look()
            except (SQLAlchemyError, OSError) as error:
                log.warning("the silence of jobs can't be seen", error=str(error).partition("\n")[0])
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Compare once; raises what the database raises."""
        async with self._database.system() as session:
            jobs = await repository.list_all(session)
        now = self._clock.now_ms()
        found = {job.name: silence for job in jobs if (silence := silence_of(job, now)) and self._is_believed(job)}
        for job in jobs:
            metrics.job_silent.labels(job.name).set(job.name in found)
            if job.last_success_at:
                metrics.job_last_success.labels(job.name).set(job.last_success_at.timestamp())
        for name in self.silent.keys() - found.keys():
            log.info("job is no longer silent", job=name)
            self._told.pop(name, None)
        self.silent = found
        for silence in found.values():
            self._tell(silence)

    def _is_believed(self, job: JobState) -> bool:
        """After everything was down, jobs have a minute to run before they count as silent, short ones less."""
        start = min(LONGEST_START_SECONDS, job.silence_after_seconds)
        return self._clock.monotonic() - self._started >= start

    def _tell(self, silence: Silence) -> None:
        now = self._clock.monotonic()
        if now - self._told.get(silence.job, float("-inf")) >= REPEAT_SECONDS:
            self._told[silence.job] = now
            log.error("job is silent", job=silence.job, since=silence.since, may_be=silence.silence_after_seconds)
