"""The state of the platform's jobs; for system sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import JobState

RUNNING = "running"


@dataclass(frozen=True, slots=True)
class JobRow:
    """What a job's declaration says, as it is stored."""

    name: str
    every_seconds: int
    silence_after_seconds: int
    runs_in: str
    schedule_id: UUID


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a run ended. ``checkpoint`` null: the one that is stored stays. ``error`` null: there was none."""

    at: datetime
    status: str
    duration_ms: int
    processed: int
    is_success: bool = False
    is_timeout: bool = False
    error: str | None = None
    checkpoint: dict[str, Any] | None = None


# A job that is known keeps its state and its first registration; its declaration may have changed.
_REGISTER = text("""
    INSERT INTO jobs (name, every_seconds, silence_after_seconds, runs_in, schedule_id, registered_at)
    VALUES (:name, :every_seconds, :silence_after_seconds, :runs_in, :schedule_id, :now)
    ON CONFLICT (name) DO UPDATE SET every_seconds = excluded.every_seconds,
        silence_after_seconds = excluded.silence_after_seconds, runs_in = excluded.runs_in,
        revision = jobs.revision + 1
    WHERE (jobs.every_seconds, jobs.silence_after_seconds, jobs.runs_in)
        <> (excluded.every_seconds, excluded.silence_after_seconds, excluded.runs_in)
""")
_SKIPPED = text("UPDATE jobs SET skipped = skipped + 1 WHERE name = :name")


async def register(session: AsyncSession, rows: Sequence[JobRow], now: datetime) -> None:
    """Make jobs known; in the order of their names, so that two processes that start can't deadlock."""
    for row in sorted(rows, key=lambda row: row.name):
        await session.execute(_REGISTER, {**asdict(row), "now": now})


async def get(session: AsyncSession, name: str) -> JobState | None:
    return await session.get(JobState, name)


async def list_all(session: AsyncSession) -> Sequence[JobState]:
    """Every job, by name."""
    return (await session.execute(select(JobState).order_by(JobState.name))).scalars().all()


async def list_of_workers(session: AsyncSession) -> Sequence[JobState]:
    """The jobs that the schedulers send to the workers."""
    return (await session.execute(select(JobState).where(JobState.runs_in == "worker"))).scalars().all()


async def lock(session: AsyncSession, name: str) -> JobState | None:
    """The job's row, held until the transaction ends."""
    return await session.get(JobState, name, with_for_update=True)


async def start(session: AsyncSession, job: JobState, now: datetime) -> int:
    """Note that a run starts; answers its fence. ``job`` is locked.

    A run before it that never ended (its process was killed) counts as a failure from now on.
    """
    job.failures += job.last_status == RUNNING
    job.fence += 1
    job.runs += 1
    job.last_started_at = now
    job.last_status = RUNNING
    await session.flush()
    return job.fence


async def save_checkpoint(session: AsyncSession, name: str, fence: int, checkpoint: dict[str, Any]) -> bool:
    """Store a checkpoint; False, and nothing stored, when a later run has begun."""
    return await _update(session, name, fence, {"checkpoint": checkpoint})


async def holds_fence(session: AsyncSession, name: str, fence: int) -> bool:
    """Whether no later run has begun; keeps one from beginning until the transaction ends."""
    query = select(JobState.name).where(JobState.name == name, JobState.fence == fence).with_for_update()
    return (await session.execute(query)).first() is not None


async def finish(session: AsyncSession, name: str, fence: int, end: JobEnd) -> bool:
    """Note how a run ended; False, and nothing stored, when a later run has begun."""
    values: dict[str, Any] = {
        "last_finished_at": end.at,
        "last_status": end.status,
        "last_duration_ms": end.duration_ms,
        "last_error": end.error,
        "processed": end.processed,
        "timeouts": JobState.timeouts + int(end.is_timeout),
    }
    if end.is_success:
        values["last_success_at"] = end.at
    else:
        values["failures"] = JobState.failures + 1
    if end.checkpoint is not None:
        values["checkpoint"] = end.checkpoint
    return await _update(session, name, fence, values)


async def count_skipped(session: AsyncSession, name: str) -> None:
    await session.execute(_SKIPPED, {"name": name})


async def _update(session: AsyncSession, name: str, fence: int, values: dict[str, Any]) -> bool:
    statement = (
        update(JobState)
        .where(JobState.name == name, JobState.fence == fence)
        .values(values)
        .returning(JobState.name)
        .execution_options(synchronize_session=False)
    )
    return (await session.execute(statement)).first() is not None
