"""Jobs that run because a person asks for them: through the same runner as every other trigger."""

from __future__ import annotations

from collections.abc import Iterable

from shared.jobs.outcome import JobOutcome
from shared.jobs.periodic import by_name
from shared.jobs.runner import Job, JobRunner
from shared.services.errors import NotFoundError


class PlatformJobDesk:
    """Runs a job because a person asks for it."""

    def __init__(self, runner: JobRunner, jobs: Iterable[Job]) -> None:
        self._runner, self._jobs = runner, by_name(jobs)

    async def run(self, name: str, *, forced: bool = False) -> JobOutcome:
        """Run it if it is due, or ``forced``; the outcome also tells of a failure.

        Raises ``NotFoundError`` and ``JobNotStartedError``.
        """
        job = self._jobs.get(name)
        if job is None:
            raise NotFoundError("job", known=self._jobs)
        return await self._runner.attempt(job, forced=forced)
