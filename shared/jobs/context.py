"""What a job is given: time, the database, its checkpoint, and the means to stop in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories import jobs
from shared.db.repositories.jobs import JobEnd
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.jobs.errors import JobTimedOutError, LockLostError
from shared.jobs.periodic import JobSpecification


class JobContext:
    """One run of a job.

    ``checkpoint`` is what the job stored last, or null; assign a JSON object to move it. What is assigned inside of
    ``transaction`` is committed with it or not at all; otherwise it is stored when the run succeeds, and only then.
    ``due_at_ms`` is the moment that the run is for, in wall-clock milliseconds. ``processed`` counts what the run
    worked on, for people and metrics.
    """

    def __init__(
        self,
        specification: JobSpecification,
        database: Database,
        clock: Clock,
        *,
        due_at_ms: int,
        fence: int,
        checkpoint: dict[str, Any] | None,
        holds_lock: Callable[[], bool],
    ) -> None:
        self.database, self.clock = database, clock
        self.due_at_ms = due_at_ms
        self.checkpoint = checkpoint
        self.processed = 0
        self._specification = specification
        self._fence, self._holds_lock = fence, holds_lock
        self._stored = deepcopy(checkpoint)
        self._deadline = clock.monotonic() + specification.timeout_seconds

    @property
    def seconds_left(self) -> float:
        """Until the timeout; negative when it is over."""
        return self._deadline - self.clock.monotonic()

    @property
    def unstored_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint, where it differs from the stored one."""
        return self.checkpoint if self.checkpoint != self._stored else None

    def raise_if_timed_out(self) -> None:
        """Call between two pieces of work; raises ``JobTimedOutError`` and ``LockLostError``."""
        if not self._holds_lock():
            raise self._lost()
        if self.seconds_left < 0:
            raise JobTimedOutError(
                f"job {self._specification.name} is over its timeout of {self._specification.timeout_seconds} s"
            )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """One transaction of the system, for the job's writes and its checkpoint together.

        Raises ``LockLostError``, and commits nothing, when another run may have begun meanwhile.
        """
        before = deepcopy(self.checkpoint)
        try:
            async with self.database.system() as session:
                yield session
                await self._guard(session)
        except BaseException:
            self.checkpoint = before
            raise
        self._stored = deepcopy(self.checkpoint)

    async def _guard(self, session: AsyncSession) -> None:
        # Last in the transaction: a run that was frozen in the middle finds out before it commits, and the row of
        # the job is locked for a moment only, so that it never keeps a successor from starting.
        name, checkpoint = self._specification.name, self.unstored_checkpoint
        if checkpoint is None:
            is_ours = await jobs.holds_fence(session, name, self._fence)
        else:
            is_ours = await jobs.save_checkpoint(session, name, self._fence, checkpoint)
        if not (is_ours and self._holds_lock()):
            raise self._lost()

    async def record(self, end: JobEnd) -> bool:
        """For the runner: store how the run ended, with its checkpoint if it succeeded; False when overtaken."""
        checkpoint = self.unstored_checkpoint if end.is_success else None
        async with self.database.system() as session:
            return await jobs.finish(
                session, self._specification.name, self._fence, replace(end, checkpoint=checkpoint)
            )

    def _lost(self) -> LockLostError:
        return LockLostError(f"job {self._specification.name}: its lock is lost, another run may have begun")
