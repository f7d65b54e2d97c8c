"""Runs a job once, whatever triggered it: if it is due, under its lock, recorded, with its checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import structlog
from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError

from shared.db.repositories import jobs as repository
from shared.db.repositories.jobs import JobEnd, JobRow
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime
from shared.jobs.context import JobContext
from shared.jobs.errors import JobNotStartedError, JobTimedOutError, LockLostError
from shared.jobs.lock import JobLock
from shared.jobs.outcome import JobOutcome, JobStatus
from shared.jobs.periodic import JobSpecification, specification_of
from shared.jobs.schedule import is_due, job_id
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.observability import metrics

log = structlog.get_logger(__name__)

Job = Callable[[JobContext], Awaitable[None]]
HANGS_AFTER_LOCKS: Final = 2
_ERROR_CHARACTERS: Final = 500
_SERVER_ERRORS = (SQLAlchemyError, NatsError, MessagingError, OSError)


@dataclass(frozen=True, slots=True)
class _Trigger:
    """``moment_ms``: for what time the job is to run. ``forced``: also when it is not due then."""

    moment_ms: int
    forced: bool


class JobRunner:
    """``ensure`` declares the bucket of locks again, should it be gone."""

    def __init__(
        self, database: Database, connection: NatsConnection, clock: Clock, ensure: Callable[[], Awaitable[None]]
    ) -> None:
        self._database, self._connection, self._clock, self._ensure = database, connection, clock, ensure

    async def register(self, jobs: Iterable[Job]) -> None:
        """Make jobs known to the schedulers and to whoever watches for silence; raises what the database raises."""
        rows = [
            JobRow(job.name, job.every_seconds, job.silence_after_seconds, job.runs_in, job_id(job.name))
            for job in map(specification_of, jobs)
        ]
        async with self._database.system() as session:
            await repository.register(session, rows, to_datetime(self._clock.now_ms()))

    async def run(self, job: Job, *, slot_ms: int | None = None, forced: bool = False) -> JobOutcome:
        """Run a job; it is due at ``slot_ms``, or now, or the run is ``forced``.

        Raises what the job raises, after it was recorded, and ``JobNotStartedError``.
        """
        outcome, error = await self._run(job, slot_ms, forced=forced)
        if error is not None:
            raise error
        return outcome

    async def attempt(self, job: Job, *, slot_ms: int | None = None, forced: bool = False) -> JobOutcome:
        """As ``run``, for callers that only pass on what happened: what the job raises is in the outcome."""
        outcome, _ = await self._run(job, slot_ms, forced=forced)
        return outcome

    async def _run(self, job: Job, slot_ms: int | None, *, forced: bool) -> tuple[JobOutcome, Exception | None]:
        specification = specification_of(job)
        # The clock of whoever sent the slot may be a little ahead of ours.
        trigger = _Trigger(max(self._clock.now_ms(), slot_ms or 0), forced)
        lock = JobLock(
            self._connection,
            specification.name,
            uuid4().hex,
            ttl=specification.lock_seconds,
            ensure=self._ensure,
            clock=self._clock,
        )
        try:
            context = await self._begin(specification, lock, trigger)
            if isinstance(context, JobStatus):
                return JobOutcome(specification.name, context), None
            return await self._work(job, specification, context, lock)
        finally:
            await lock.release()

    async def _begin(
        self, specification: JobSpecification, lock: JobLock, trigger: _Trigger
    ) -> JobContext | JobStatus:
        """The context of a run that may begin, or why there is none."""
        try:
            return await self._acquire(specification.name, lock, trigger) or await self._start(
                specification, lock, trigger
            )
        except _SERVER_ERRORS as error:
            raise JobNotStartedError(f"job {specification.name} could not start: {_line(error)}") from error

    async def _acquire(self, name: str, lock: JobLock, trigger: _Trigger) -> JobStatus | None:
        """Take the lock if the job is due; else what there is to say."""
        async with self._database.system() as session:
            job = await repository.get(session, name)
            if job is None:
                raise JobNotStartedError(
                    f"job {name} is not registered: start an API process of this release first"
                )
            if not (trigger.forced or is_due(job, trigger.moment_ms)):
                return JobStatus.NOT_DUE
        if not await lock.acquire():
            async with self._database.system() as session:
                await repository.count_skipped(session, name)
            metrics.job_runs.labels(name, JobStatus.SKIPPED.value).inc()
            log.info("job skipped: another run of it holds the lock", job=name)
            return JobStatus.SKIPPED
        return None

    async def _start(
        self, specification: JobSpecification, lock: JobLock, trigger: _Trigger
    ) -> JobContext | JobStatus:
        async with self._database.system() as session:
            job = await repository.lock(session, specification.name)
            assert job is not None, "rows of jobs are not deleted"
            # Asked again under the lock: the run that held it just now may have done the work.
            if not (trigger.forced or is_due(job, trigger.moment_ms)):
                return JobStatus.NOT_DUE
            if job.last_status == repository.RUNNING:
                log.error("the last run of a job never ended", job=job.name, started_at=job.last_started_at)
            fence = await repository.start(session, job, to_datetime(trigger.moment_ms))
            checkpoint = job.checkpoint
        return JobContext(
            specification,
            self._database,
            self._clock,
            due_at_ms=trigger.moment_ms,
            fence=fence,
            checkpoint=checkpoint,
            holds_lock=lock.holds,
        )

    async def _work(
        self, job: Job, specification: JobSpecification, context: JobContext, lock: JobLock
    ) -> tuple[JobOutcome, Exception | None]:
        began = self._clock.monotonic()
        renewal = asyncio.create_task(lock.keep())
        error = await _call(job, context, HANGS_AFTER_LOCKS * specification.lock_seconds)
        seconds = self._clock.monotonic() - began
        renewal.cancel()
        # It has to be over before the lock is released: a renewal under way would bring the lock back.
        await asyncio.gather(renewal, return_exceptions=True)
        status = _status(error, seconds, specification)
        outcome = JobOutcome(
            specification.name,
            status,
            round(seconds * 1000),
            context.processed,
            _error_line(error, status, seconds, specification),
        )
        return await self._record(outcome, context, error)

    async def _record(
        self, outcome: JobOutcome, context: JobContext, error: BaseException | None
    ) -> tuple[JobOutcome, Exception | None]:
        try:
            if not await context.record(_end(outcome, max(self._clock.now_ms(), context.due_at_ms))):
                error = error or LockLostError(f"job {outcome.name}: another run began before this one ended")
                outcome = replace(outcome, status=JobStatus.LOST, error=_line(error))
        except _SERVER_ERRORS as failure:
            log.error("how a run of a job ended could not be stored", job=outcome.name, error=_line(failure))
        _tell(outcome, error, self._clock.now_ms())
        if isinstance(error, asyncio.CancelledError):
            raise error
        assert error is None or isinstance(error, Exception)
        return outcome, error


async def _call(job: Job, context: JobContext, limit_seconds: int) -> BaseException | None:
    """What the job raises. Its timeout is its own to keep; one that hangs is cancelled while we hold the lock."""
    limit = asyncio.timeout(limit_seconds)
    try:
        async with limit:
            await job(context)
    except TimeoutError as error:
        return JobTimedOutError(f"cancelled after {limit_seconds} s") if limit.expired() else error
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 whatever a job raises is recorded
        return error
    return None


def _status(error: BaseException | None, seconds: float, job: JobSpecification) -> JobStatus:
    if isinstance(error, LockLostError):
        return JobStatus.LOST
    if isinstance(error, JobTimedOutError):
        return JobStatus.TIMED_OUT
    if error is not None:
        return JobStatus.FAILED
    return JobStatus.OVERRAN if seconds > job.timeout_seconds else JobStatus.SUCCEEDED


def _error_line(
    error: BaseException | None, status: JobStatus, seconds: float, job: JobSpecification
) -> str | None:
    if status is JobStatus.OVERRAN:
        return f"it took {seconds:.1f} s; its timeout is {job.timeout_seconds} s"
    if isinstance(error, asyncio.CancelledError):
        return "its process stopped"
    return None if error is None else _line(error)


def _end(outcome: JobOutcome, now_ms: int) -> JobEnd:
    return JobEnd(
        at=to_datetime(now_ms),
        status=outcome.status.value,
        duration_ms=outcome.duration_ms,
        processed=outcome.processed,
        is_success=outcome.is_success,
        is_timeout=outcome.status in {JobStatus.TIMED_OUT, JobStatus.OVERRAN},
        error=outcome.error,
    )


def _tell(outcome: JobOutcome, error: BaseException | None, now_ms: int) -> None:
    metrics.job_runs.labels(outcome.name, outcome.status.value).inc()
    metrics.job_duration.labels(outcome.name).observe(outcome.duration_ms / 1000)
    metrics.job_processed.labels(outcome.name).set(outcome.processed)
    facts = {"job": outcome.name, "status": outcome.status.value, "duration_ms": outcome.duration_ms}
    if outcome.is_success:
        metrics.job_last_success.labels(outcome.name).set(now_ms / 1000)
    if outcome.status is JobStatus.SUCCEEDED:
        log.debug("job done", **facts, processed=outcome.processed)
    elif outcome.is_success:
        log.warning("job done, but over its timeout", **facts, error=outcome.error)
    else:
        # Our own errors say it all; a job's own is shown with where it came from.
        is_ours = isinstance(error, JobTimedOutError | LockLostError | asyncio.CancelledError)
        log.error("job failed", **facts, error=outcome.error, exc_info=None if is_ours else error)


def _line(error: BaseException) -> str:
    return describe(error).partition("\n")[0].replace("\0", "")[:_ERROR_CHARACTERS]
