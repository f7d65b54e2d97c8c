"""Pipelines: named steps in order, and the decision what comes next.

Everything in here is pure: from a definition, a record of what happened and the time to the next action or the
next record. Who keeps the record and who does the work is said in ``pipeline_run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from shared.tasks.pipeline_record import (
    FINISHED_STATES,
    WORKER_LOST,
    PipelineRecord,
    StepAttempt,
    StepFailure,
    StepRecord,
    StepState,
)

if TYPE_CHECKING:  # it knows the errors of database and queue; checks, which retry no step, do without
    from shared.tasks.policy import RetryPolicy

OnError = Literal["stop", "continue"]
Role = Literal["step", "compensation", "cleanup"]

MAX_INTERRUPTIONS: Final = 5
"""So often a step is begun again after its worker died; then the step itself is taken to be what kills workers."""

_LONGEST_RESERVE_SECONDS: Final = 5.0
_RESERVED_SHARE: Final = 0.2


class PipelineDefinitionError(ValueError):
    """A pipeline that could not work as it is declared; the message says the mend."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Without a policy of its own it has the pipeline's; ``timeout`` (seconds) spans all its attempts.

    After a failure that no retry mends, ``on_error`` stops the pipeline or goes on: later steps see the failure.
    """

    name: str
    retry: RetryPolicy | None = None
    attempt_timeout: float | None = None
    timeout: float | None = None
    on_error: OnError = "stop"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Steps in order, then ``compensation`` once if any of them failed, then ``cleanup`` in any case.

    ``timeout`` (seconds) spans everything. ``reserve`` seconds of it are kept for compensation and cleanup: a
    fifth, at most 5 s, unless given. Raises ``PipelineDefinitionError``.
    """

    steps: tuple[Step, ...]
    timeout: float
    retry: RetryPolicy | None = None
    compensation: Step | None = None
    cleanup: Step | None = None
    reserve: float | None = None
    by_name: dict[str, Step] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        every = [step for step, _ in self.in_order()]
        object.__setattr__(self, "by_name", {step.name: step for step in every})
        _check(self, every)

    def in_order(self) -> Iterator[tuple[Step, Role]]:
        """Every step with its role, in the order in which they are considered."""
        for step in self.steps:
            yield step, "step"
        if self.compensation:
            yield self.compensation, "compensation"
        if self.cleanup:
            yield self.cleanup, "cleanup"

    @property
    def reserved_seconds(self) -> float:
        """What the steps leave of the timeout."""
        if not (self.compensation or self.cleanup):
            return 0.0
        if self.reserve is not None:
            return self.reserve
        return min(self.timeout * _RESERVED_SHARE, _LONGEST_RESERVE_SECONDS)


def _check(pipeline: Pipeline, every: list[Step]) -> None:
    if not pipeline.steps:
        raise PipelineDefinitionError("a pipeline needs at least one step")
    if len(pipeline.by_name) < len(every):
        raise PipelineDefinitionError("two steps have the same name: their records could not be told apart")
    if pipeline.timeout <= 0:
        raise PipelineDefinitionError("timeout must be more than 0 s: without an end a pipeline can hang for ever")
    if not 0 <= pipeline.reserved_seconds < pipeline.timeout:
        raise PipelineDefinitionError("reserve must leave the steps some of the timeout")
    for step in every:
        _check_step(step, pipeline.timeout)


def _check_step(step: Step, whole: float) -> None:
    limits = [("attempt_timeout", step.attempt_timeout), ("timeout", step.timeout)]
    for name, seconds in limits:
        if seconds is not None and not 0 < seconds <= whole:
            raise PipelineDefinitionError(
                f"step {step.name!r}: {name} ({seconds:g} s) must be more than 0 and fit into the "
                f"pipeline's {whole:g} s"
            )
    if step.attempt_timeout is not None and step.timeout is not None and step.attempt_timeout > step.timeout:
        raise PipelineDefinitionError(
            f"step {step.name!r}: attempt_timeout ({step.attempt_timeout:g} s) is longer than timeout "
            f"({step.timeout:g} s): no attempt could ever use it"
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Make an attempt at this step, for at most so many seconds."""

    step: Step
    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Come back in so many seconds: the retry of this step is due then."""

    step: Step
    seconds: float


@dataclass(frozen=True, slots=True)
class Expire:
    """No time is left for this step: it has failed before it began, or between two attempts."""

    step: Step


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. Names the steps that failed, and those that were not run, in order."""

    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


Action = Run | Wait | Expire | Finish


def next_action(pipeline: Pipeline, record: PipelineRecord, now_ms: int) -> Action:
    """What to do now. The record has no attempt that is still running: see ``resumed``."""
    for step, role in pipeline.in_order():
        state = record.of(step.name).state
        if state not in FINISHED_STATES and _is_wanted(pipeline, record, role):
            return _act(pipeline, record, step, now_ms)
    states = {name: record.of(name).state for name in pipeline.by_name}
    failed = tuple(name for name, state in states.items() if state == "failed")
    return Finish(failed, tuple(name for name, state in states.items() if state not in FINISHED_STATES))


def _is_wanted(pipeline: Pipeline, record: PipelineRecord, role: Role) -> bool:
    if role == "cleanup":
        return True
    failed = [step for step in pipeline.steps if record.has_failed(step.name)]
    if role == "compensation":
        return bool(failed)
    return all(step.on_error == "continue" for step in failed)


def _act(pipeline: Pipeline, record: PipelineRecord, step: Step, now_ms: int) -> Action:
    seen = record.of(step.name)
    if seen.next_ms is not None and seen.next_ms > now_ms:
        return Wait(step, (seen.next_ms - now_ms) / 1000)
    left = (_deadline_ms(pipeline, record, step, now_ms) - now_ms) / 1000
    if left <= 0:
        return Expire(step)
    return Run(step, left if step.attempt_timeout is None else min(left, step.attempt_timeout))


def _deadline_ms(pipeline: Pipeline, record: PipelineRecord, step: Step, now_ms: int) -> int:
    """When all attempts at a step have to be over.

    Compensation and cleanup have their reserve from the moment they begin: they run also when nobody was there
    to run them before the time of the whole pipeline was up.
    """
    began = now_ms if (first := record.of(step.name).began_ms) is None else first
    end = record.started_ms + round(pipeline.timeout * 1000)
    reserved = round(pipeline.reserved_seconds * 1000)
    whole = end - reserved if any(step is each for each in pipeline.steps) else max(end, began + reserved)
    return whole if step.timeout is None else min(whole, began + round(step.timeout * 1000))


def begun(record: PipelineRecord, step: Step, now_ms: int) -> PipelineRecord:
    """The record once an attempt is under way; to be kept before the attempt is made."""
    seen = record.of(step.name)
    attempts = (*seen.attempts, StepAttempt(started_ms=now_ms))
    return record.having(step.name, msgspec.structs.replace(seen, attempts=attempts, state="running", next_ms=None))


def succeeded(record: PipelineRecord, step: Step, value: Any, now_ms: int) -> PipelineRecord:
    """The record after an attempt that brought a value."""
    seen = _closed(record.of(step.name), now_ms, None)
    return record.having(step.name, msgspec.structs.replace(seen, state="done", value=value))


def failed(
    pipeline: Pipeline, record: PipelineRecord, step: Step, error: BaseException, now_ms: int
) -> PipelineRecord:
    """The record after an attempt that failed: another one is due, or the step has failed for good."""
    seen = _closed(record.of(step.name), now_ms, StepFailure.of(error))
    due = _retry_due_ms(pipeline, record, step, error, now_ms)
    state: StepState = "failed" if due is None else "waiting"
    return record.having(step.name, msgspec.structs.replace(seen, state=state, next_ms=due))


def _retry_due_ms(
    pipeline: Pipeline, record: PipelineRecord, step: Step, error: BaseException, now_ms: int
) -> int | None:
    policy, seen = step.retry or pipeline.retry, record.of(step.name)
    if policy is None:
        return None
    from shared.tasks.policy import next_delay  # noqa: PLC0415 see TYPE_CHECKING above

    spent = (now_ms - seen.attempts[0].started_ms) / 1000
    delay = next_delay(policy, seen.counted, error, spent=spent, now_ms=now_ms)
    if delay is None:
        return None
    due = now_ms + round(delay * 1000)
    return due if due < _deadline_ms(pipeline, record, step, now_ms) else None


def expired(record: PipelineRecord, step: Step) -> PipelineRecord:
    """The record of a step for which no time was left."""
    seen = record.of(step.name)
    failure = StepFailure("timeout", "no time was left for this step")
    return record.having(step.name, msgspec.structs.replace(seen, state="failed", next_ms=None, expired=failure))


def resumed(record: PipelineRecord, now_ms: int) -> PipelineRecord:
    """The record as it is taken up by another worker: an attempt under way has lost its worker.

    Such an attempt does not count for the policy, it is simply made again, ``MAX_INTERRUPTIONS`` times.
    """
    for name, seen in record.steps.items():
        if seen.state == "running":
            lost = StepFailure(WORKER_LOST, "the worker died or was stopped during this attempt")
            closed = _closed(seen, now_ms, lost)
            state: StepState = "failed" if closed.interruptions > MAX_INTERRUPTIONS else "waiting"
            record = record.having(name, msgspec.structs.replace(closed, state=state))
    return record


def _closed(seen: StepRecord, now_ms: int, error: StepFailure | None) -> StepRecord:
    *earlier, last = seen.attempts
    closed = msgspec.structs.replace(last, ended_ms=now_ms, error=error)
    return msgspec.structs.replace(seen, attempts=(*earlier, closed))
