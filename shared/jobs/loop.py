"""The second trigger: a process's own clock, for jobs that must go on without schedulers, queue or schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from shared.jobs.errors import JobNotStartedError
from shared.jobs.runner import Job, JobRunner
from shared.messaging.cancellation import is_cancelled

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 5.0


async def keep_running(runner: JobRunner, jobs: Iterable[Job], poll_seconds: float = POLL_SECONDS) -> None:
    """Run each of the jobs when it is due, side by side, until cancelled. Several processes may do it at once."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(_keep_running(runner, job, poll_seconds))


async def _keep_running(runner: JobRunner, job: Job, poll_seconds: float) -> None:
    while not is_cancelled():
        pause = poll_seconds
        try:
            await runner.attempt(job)
        except JobNotStartedError as error:
            log.warning("a job could not start and is tried again", error=str(error))
            pause = PAUSE_SECONDS
        await asyncio.sleep(pause)
