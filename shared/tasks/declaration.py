"""Tasks as their authors write them: a function, its argument, and what happens when it fails.

Everything that would only show up in production is refused here, when the module is imported.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec

from shared.tasks.errors import DeclarationError, RetryLater
from shared.tasks.policy import MAX_ATTEMPTS, NO_RETRY, RetryPolicy

MAX_TIMEOUT_SECONDS: Final = 900.0
_ENDLESS: Final = 10_000
"""A policy that wants one more attempt after so many would never end."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

ArgumentType = TypeVar("ArgumentType", bound=msgspec.Struct)
Resources = TypeVar("Resources")


@dataclass(frozen=True, slots=True)
class TaskContext(Generic[Resources]):
    """What a task knows of its run.

    ``attempt`` counts from 1; ``resources`` is what the set of tasks was given when a worker took it on. ``run``
    stays the same over all attempts, and is another one when the task is sent again, such as from a dead letter,
    which ``is_replay`` tells.
    """

    task_id: str
    attempt: int
    organisation_id: UUID | None
    resources: Resources
    run: str = ""
    is_replay: bool = False


TaskFunction = Callable[[ArgumentType, TaskContext[Resources]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Task(Generic[ArgumentType, Resources]):
    """A declared task. Calling it calls the function, without queue and retries."""

    name: str
    function: TaskFunction[ArgumentType, Resources]
    argument: type[ArgumentType]
    timeout: float
    retry: RetryPolicy
    idempotent: bool

    async def __call__(self, argument: ArgumentType, context: TaskContext[Resources]) -> None:
        await self.function(argument, context)


class TaskSet(Generic[Resources]):
    """Tasks that work with the same resources, as a database and channels; a worker takes them on together."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Any, Resources]] = {}

    def __iter__(self) -> Iterator[Task[Any, Resources]]:
        return iter(self._tasks.values())

    def declare(
        self,
        name: str,
        *,
        argument: type[ArgumentType],
        timeout: float,
        retry: RetryPolicy = NO_RETRY,
        idempotent: bool = False,
    ) -> Callable[[TaskFunction[ArgumentType, Resources]], Task[ArgumentType, Resources]]:
        """Make an async function ``(argument, context) -> None`` a task.

        ``timeout`` bounds each attempt, in seconds. ``idempotent`` is a promise: running it twice does what running
        it once does. Raises ``DeclarationError``.
        """

        def declared(function: TaskFunction[ArgumentType, Resources]) -> Task[ArgumentType, Resources]:
            if name in self._tasks:
                raise DeclarationError(f"task {name} is declared twice: give one of the two another name")
            task = Task(name, function, argument, timeout, retry, idempotent)
            check(task)
            self._tasks[name] = task
            return task

        return declared


def check(task: Task[Any, Any]) -> None:
    """Raise ``DeclarationError``, with the mend, for the first thing that cannot work."""
    for fault_of in (_fault_of_function, _fault_of_policy, _fault_of_time, _fault_of_mark):
        if fault := fault_of(task):
            raise DeclarationError(f"task {task.name!r}: {fault}")


def _fault_of_function(task: Task[Any, Any]) -> str | None:
    if not _NAME.fullmatch(task.name):
        return "a name has 1 to 64 lower-case letters, digits and underscores, and begins with a letter: rename it"
    if not inspect.iscoroutinefunction(task.function):
        return "the function would block every other task: write it as async def"
    argument: object = task.argument
    if not (isinstance(argument, type) and issubclass(argument, msgspec.Struct)):
        return "argument= takes a msgspec.Struct: put the values into one"
    if len(inspect.signature(task.function).parameters) != 2:
        return "the function takes two parameters: write (argument, context)"
    return None


def _fault_of_policy(task: Task[Any, Any]) -> str | None:
    retry = task.retry
    attempts: object = retry.attempts  # None and infinity are what authors write who want it to go on for ever
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        return f"attempts={attempts!r} would never end: give a number from 1 to {MAX_ATTEMPTS}"
    if attempts > MAX_ATTEMPTS:
        return f"attempts={attempts} is as good as unlimited: give at most {MAX_ATTEMPTS} and a longer delay"
    if not 0 <= retry.jitter <= 0.5:
        return f"jitter={retry.jitter} is a share of the delay: give a number from 0 to 0.5"
    return _fault_of_fields(retry) or _fault_of_decisions(retry) if _may_retry(retry) else None


def _may_retry(retry: RetryPolicy) -> bool:
    return retry.attempts > 1 or type(retry).should_retry is not RetryPolicy.should_retry


def _fault_of_fields(retry: RetryPolicy) -> str | None:
    if type(retry).get_delay is not RetryPolicy.get_delay:
        return None  # who decides in get_delay may have no use for them
    if not (retry.delay > 0 and math.isfinite(retry.delay)):
        return f"delay={retry.delay} would hammer what just failed: give the seconds before the second attempt"
    if not 1 <= retry.factor <= 100:
        return f"factor={retry.factor} would shorten the waits, or never end: give 1 (equal waits) to 100"
    if not (retry.delay <= retry.maximum and math.isfinite(retry.maximum)):
        return f"maximum={retry.maximum} is less than delay={retry.delay}, or no time at all: raise maximum"
    return None


def _fault_of_decisions(retry: RetryPolicy) -> str | None:
    """What a subclass would do wrong, which would only show once a task has failed."""
    try:
        waits = [retry.get_delay(attempt) for attempt in range(1, max(retry.attempts, 2))]
        is_endless = any(retry.should_retry(_ENDLESS, error) for error in (RetryLater(), TimeoutError()))
    except Exception as error:  # noqa: BLE001 whatever it raises here, it would raise after each attempt
        return (
            f"its policy fails ({error!r}): write should_retry(self, attempt, error) and get_delay(self, attempt)"
        )
    if odd := [wait for wait in waits if not (wait > 0 and math.isfinite(wait))]:
        return f"get_delay gives {odd[0]}, which would hammer what just failed: give the seconds to wait"
    return "should_retry would never end: let it answer False from some attempt on" if is_endless else None


def _fault_of_time(task: Task[Any, Any]) -> str | None:
    retry = task.retry
    if not 0 < task.timeout <= MAX_TIMEOUT_SECONDS:
        return f"timeout={task.timeout} seconds for an attempt: give more than 0, at most {MAX_TIMEOUT_SECONDS:g}"
    if retry.budget is None:
        return None
    if task.timeout > retry.budget:
        return (
            f"timeout={task.timeout} is longer than budget={retry.budget}: shorten the timeout or raise the budget"
        )
    needed = retry.longest_delays() + retry.attempts * task.timeout
    if retry.budget < needed:
        return (
            f"budget={retry.budget} ends before the last of {retry.attempts} attempts (waits and timeouts need "
            f"{needed:g} seconds): raise the budget, or have fewer attempts"
        )
    return None


def _fault_of_mark(task: Task[Any, Any]) -> str | None:
    if _may_retry(task.retry) and not task.idempotent:
        return (
            "a retry runs it again after an attempt that may have done its work: "
            "make a second run harmless and say idempotent=True, or drop the retries"
        )
    return None
