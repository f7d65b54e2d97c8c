"""How a job is declared: ``@periodic(...)`` on an async function that takes a ``JobContext``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from shared.jobs.errors import JobDeclarationError

Place = Literal["worker", "api"]
Function = TypeVar("Function", bound=Callable[..., Awaitable[None]])

_ATTRIBUTE: Final = "__periodic__"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_declared: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class JobSpecification:
    """What a declaration says; durations in seconds.

    ``runs_in`` is where it is triggered: in the workers by a schedule, or in the API process by its own clock, for
    what must go on while schedulers, workers or the schedules themselves are gone.
    """

    name: str
    every_seconds: int
    lock_seconds: int
    timeout_seconds: int
    silence_after_seconds: int
    runs_in: Place = "worker"


def periodic(
    name: str, *, every: str, lock: str, timeout: str, silence_after: str, runs_in: Place = "worker"
) -> Callable[[Function], Function]:
    """Declare an async function as a job; it stays callable as it was.

    Durations are written ``30s``, ``15m``, ``2h``, ``1d``. A run should end within ``timeout``; one that hangs is
    cancelled after twice its ``lock``. A crashed run keeps others out for ``lock`` at most. Without a success for
    ``silence_after`` the platform raises an alarm. Raises ``JobDeclarationError``.
    """
    specification = JobSpecification(
        name,
        _seconds(name, "every", every),
        _seconds(name, "lock", lock),
        _seconds(name, "timeout", timeout),
        _seconds(name, "silence_after", silence_after),
        runs_in,
    )
    _refuse_contradictions(specification)

    def attach(function: Function) -> Function:
        is_async: bool = inspect.iscoroutinefunction(function)
        if not is_async:
            raise _refusal(name, "its function is not async", "write async def")
        _remember(name, f"{function.__module__}.{function.__qualname__}")
        setattr(function, _ATTRIBUTE, specification)
        return function

    return attach


def specification_of(job: Callable[..., Any]) -> JobSpecification:
    """What was declared of a job; raises ``JobDeclarationError`` for a function that is none."""
    found = getattr(job, _ATTRIBUTE, None)
    if not isinstance(found, JobSpecification):
        raise JobDeclarationError(f"{job!r} is no job: declare it with @periodic")
    return found


def by_name(jobs: Iterable[Function]) -> dict[str, Function]:
    return {specification_of(job).name: job for job in jobs}


def _seconds(name: str, what: str, text: str) -> int:
    found = _DURATION.fullmatch(text)
    if not found:
        raise _refusal(name, f"{what}={text!r} is no duration", 'write a number and s, m, h or d, as in "15m"')
    return int(found[1]) * _UNITS[found[2]]


def _refuse_contradictions(job: JobSpecification) -> None:
    if not _NAME.fullmatch(job.name):
        raise _refusal(job.name, "its name can't be a key", "use up to 63 lower-case letters, digits and _")
    if job.lock_seconds < job.timeout_seconds:
        raise _refusal(
            job.name,
            f"its lock ({job.lock_seconds} s) is shorter than its timeout ({job.timeout_seconds} s)",
            "make lock at least as long as timeout, or two runs overlap",
        )
    if job.silence_after_seconds < job.every_seconds:
        raise _refusal(
            job.name,
            f"it would be silent ({job.silence_after_seconds} s) before it is due again ({job.every_seconds} s)",
            "make silence_after at least as long as every",
        )


def _remember(name: str, place: str) -> None:
    # Two jobs of one name would share one lock, one state and one alarm.
    if _declared.setdefault(name, place) != place:
        raise _refusal(name, f"{_declared[name]} has this name already", "choose another name")


def _refusal(name: str, problem: str, mend: str) -> JobDeclarationError:
    return JobDeclarationError(f"job {name!r}: {problem}; {mend}")
