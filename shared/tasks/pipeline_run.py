"""Running a pipeline: the loop around the decisions, and where its record is kept meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shared.tasks.pipeline import (
    Expire,
    Finish,
    Pipeline,
    Run,
    Step,
    Wait,
    begun,
    expired,
    failed,
    next_action,
    resumed,
    succeeded,
)
from shared.tasks.pipeline_record import PipelineRecord, StepRecord

Attempt = Callable[[Step, PipelineRecord, float], Awaitable[Any]]
"""Makes an attempt at a step and returns its value. It is given what the record says of earlier steps, and the
seconds it has; an exception is the failure of the attempt."""

OnFailure = Callable[[Step, StepRecord, Exception], Awaitable[None]]
"""Is told of each failed attempt when it is kept; ``next_ms`` of the record says whether another one follows."""

Pause = Callable[[float], Awaitable[None]]
"""Waits until a retry is due, or raises to have somebody else come back then."""


class Journal(Protocol):
    """Keeps the record of one run."""

    async def load(self) -> PipelineRecord | None: ...

    async def save(self, record: PipelineRecord) -> None:
        """Returns once it is kept; raises when somebody else has written meanwhile."""
        ...


class MemoryJournal:
    """For runs that are over with their process."""

    def __init__(self) -> None:
        self.record: PipelineRecord | None = None

    async def load(self) -> PipelineRecord | None:
        return self.record

    async def save(self, record: PipelineRecord) -> None:
        self.record = record


async def run_pipeline(
    pipeline: Pipeline,
    attempt: Attempt,
    journal: Journal,
    now_ms: Callable[[], int],
    *,
    pause: Pause = asyncio.sleep,
    on_failure: OnFailure | None = None,
) -> PipelineRecord:
    """Go on from what the journal holds until nothing is left to do; the record says how each step ended.

    Raises what ``journal``, ``pause`` and ``on_failure`` raise. A cancellation leaves the attempt as under way, as
    a crash does.
    """
    record = await journal.load()
    record = PipelineRecord(now_ms()) if record is None else resumed(record, now_ms())
    while True:
        match next_action(pipeline, record, now_ms()):
            case Finish():
                return record
            case Wait(_, seconds):
                await pause(seconds)
            case Expire(step):
                record = expired(record, step)
                await journal.save(record)
            case Run(step, seconds):
                record = begun(record, step, now_ms())
                await journal.save(record)
                value, error = await _outcome(attempt(step, record, seconds))
                if error is None:
                    record = succeeded(record, step, value, now_ms())
                else:
                    record = failed(pipeline, record, step, error, now_ms())
                await journal.save(record)
                if error is not None and on_failure is not None:
                    await on_failure(step, record.of(step.name), error)


async def _outcome(attempt: Awaitable[Any]) -> tuple[Any, Exception | None]:
    try:
        return await attempt, None
    except Exception as error:  # noqa: BLE001 - whatever a step raises is its failure, and is kept in the record
        return None, error
