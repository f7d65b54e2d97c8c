"""Pipelines as tasks: a run survives its worker, goes on where it stopped, and waits for a retry in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from nats.errors import Error as NatsError

from shared.domain.clock import Clock
from shared.messaging.connect import describe
from shared.messaging.errors import MessagingError
from shared.tasks.declaration import Task, TaskContext, TaskSet, check
from shared.tasks.errors import DeclarationError, GiveUp, RetryLater
from shared.tasks.pipeline import Finish, Pipeline, Step, next_action
from shared.tasks.pipeline_journal import PipelineJournals
from shared.tasks.pipeline_record import PipelineRecord, StepRecord
from shared.tasks.pipeline_run import OnFailure, run_pipeline
from shared.tasks.policy import MAX_ATTEMPTS, NO_RETRY, RetryNotice, RetryPolicy

VALUE_LIMIT: Final = 16 * 1024
"""What a step may hand on, in bytes of JSON: all values lie in one record."""

MAX_STEP_ATTEMPTS: Final = 60
"""Attempts of all steps together: each lies in the record, and each wait for one in the journal of the task."""

MAX_DELIVERIES: Final = 500
"""Of one run: more would not fit into the journal of the task, and a run needs far fewer."""

_JOURNAL_AWAY_SECONDS: Final = 5.0
_HOOK_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)
ArgumentType = TypeVar("ArgumentType", bound=msgspec.Struct)
Resources = TypeVar("Resources")


class _UntilItIsOver(RetryPolicy):
    """The message of a run comes back until the run has ended, which its own timeout and policies see to."""

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        """Whether ``error`` says that there is more to do; steps that failed are told by ``GiveUp``."""
        return attempt < MAX_DELIVERIES and isinstance(error, RetryLater | TimeoutError)


_DELIVERIES: Final = _UntilItIsOver(attempts=MAX_ATTEMPTS, delay=0.05, factor=1.0, jitter=0.0)


@dataclass(frozen=True, slots=True)
class StepContext(Generic[Resources]):
    """What a step knows of its run. ``earlier`` has the steps before it: their values, and how they failed."""

    task: TaskContext[Resources]
    attempt: int
    earlier: Mapping[str, StepRecord]


StepFunction = Callable[[ArgumentType, StepContext[Resources]], Awaitable[Any]]
"""Does the work of a step and returns its value, a JSON value that later steps can use."""


def pipeline_task(
    tasks: TaskSet[Resources],
    name: str,
    pipeline: Pipeline,
    functions: Mapping[str, StepFunction[ArgumentType, Resources]],
    *,
    argument: type[ArgumentType],
    journals: Callable[[Resources], PipelineJournals],
    idempotent: bool = False,
) -> Task[ArgumentType, Resources]:
    """Declare a pipeline as a task: one function ``(argument, context) -> value`` for each step.

    A step that has finished is not run again, whatever happens to its worker; one that was under way is, so each
    has to be ``idempotent``. A run in which a step failed becomes a dead letter after compensation and cleanup.
    Sent again under the same id, such as from its dead letter, it begins anew. Raises ``DeclarationError``.
    """
    _check(name, pipeline, functions, argument, idempotent=idempotent)

    async def run(given: ArgumentType, context: TaskContext[Resources]) -> None:
        kept = journals(context.resources)
        try:
            record = await run_pipeline(
                pipeline,
                _attempts(functions, given, context),
                kept.of(name, context.task_id, context.run),
                kept.clock.now_ms,
                pause=_come_back,
                on_failure=_teller(name, pipeline, context, kept.clock),
            )
        except (MessagingError, NatsError) as error:
            raise RetryLater(
                f"the record cannot be kept: {describe(error)}", after=_JOURNAL_AWAY_SECONDS
            ) from error
        _raise_failures(pipeline, record, kept.clock.now_ms())

    at_once = sum(_attempt_seconds(pipeline, step) for step in pipeline.by_name.values())
    declare = tasks.declare(name, argument=argument, timeout=at_once, retry=_DELIVERIES, idempotent=idempotent)
    return declare(run)


def _attempts(
    functions: Mapping[str, StepFunction[ArgumentType, Resources]],
    argument: ArgumentType,
    context: TaskContext[Resources],
) -> Callable[[Step, PipelineRecord, float], Awaitable[Any]]:
    async def attempt(step: Step, record: PipelineRecord, seconds: float) -> Any:
        earlier = {name: seen for name, seen in record.steps.items() if name != step.name}
        step_context = StepContext(context, len(record.of(step.name).attempts), earlier)
        async with asyncio.timeout(seconds):
            value = await functions[step.name](argument, step_context)
        return _kept(step, value)

    return attempt


def _kept(step: Step, value: Any) -> Any:
    """The value as another worker will read it; raises ``GiveUp`` for one that cannot be kept."""
    try:
        written = msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise GiveUp(f"step {step.name} returned what is not JSON: {error}") from error
    if len(written) > VALUE_LIMIT:
        raise GiveUp(f"step {step.name} returned {len(written)} bytes, at most {VALUE_LIMIT} can be kept")
    return msgspec.json.decode(written)


async def _come_back(seconds: float) -> None:
    raise RetryLater("the next attempt at a step is not due yet", after=seconds)


def _teller(name: str, pipeline: Pipeline, context: TaskContext[Any], clock: Clock) -> OnFailure:
    async def tell(step: Step, seen: StepRecord, error: Exception) -> None:
        policy = step.retry or pipeline.retry
        if policy is None or policy.on_retry is None or seen.next_ms is None:
            return
        delay = (seen.next_ms - clock.now_ms()) / 1000
        notice = RetryNotice(f"{name}.{step.name}", context.task_id, seen.counted, error, delay)
        try:
            async with asyncio.timeout(_HOOK_SECONDS):
                await policy.on_retry(notice)
        except Exception as fault:  # noqa: BLE001 a hook is told, it has no say
            _log.error("on_retry failed", task=name, step=step.name, task_id=context.task_id, error=describe(fault))

    return tell


def _raise_failures(pipeline: Pipeline, record: PipelineRecord, now_ms: int) -> None:
    match next_action(pipeline, record, now_ms):
        case Finish(failed) if failed:
            told = (
                f"step {name}: {fault.kind}: {fault.message}" for name in failed if (fault := record.of(name).error)
            )
            raise GiveUp("; ".join(told))


def _attempt_seconds(pipeline: Pipeline, step: Step) -> float:
    return step.attempt_timeout or step.timeout or pipeline.timeout


def _check(
    name: str, pipeline: Pipeline, functions: Mapping[str, Any], argument: type[msgspec.Struct], *, idempotent: bool
) -> None:
    if odd := pipeline.by_name.keys() ^ functions.keys():
        raise DeclarationError(
            f"pipeline {name!r}: {', '.join(sorted(odd))}: give each step one function by its name"
        )
    total = 0
    for step in pipeline.by_name.values():
        retry = step.retry or pipeline.retry or NO_RETRY
        total += retry.attempts
        try:
            check(
                Task(step.name, functions[step.name], argument, _attempt_seconds(pipeline, step), retry, idempotent)
            )
        except DeclarationError as error:
            raise DeclarationError(f"pipeline {name!r}, {str(error).replace('task', 'step', 1)}") from None
    if total > MAX_STEP_ATTEMPTS:
        raise DeclarationError(
            f"pipeline {name!r}: its steps have {total} attempts together: at most {MAX_STEP_ATTEMPTS}, have fewer"
        )
