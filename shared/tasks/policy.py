"""When a failed attempt is followed by another one. Decisions only: whoever runs the task carries them out."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from shared.tasks.errors import GiveUp, RetryLater
from shared.tasks.failures import is_passing, requested_wait

MAX_ATTEMPTS: Final = 100
_RANDOM: Final = random.SystemRandom()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """An attempt failed and the next one is on its way: ``attempt`` counts from 1, ``delay`` is in seconds."""

    task: str
    task_id: str
    attempt: int
    error: BaseException
    delay: float


OnRetry = Callable[[RetryNotice], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and with which waits, a task is tried. The default: once.

    ``attempts`` counts the first one too. The wait after attempt n is ``delay`` × ``factor`` ** (n − 1), at most
    ``maximum``, ± ``jitter`` as a share of it; all in seconds. ``budget`` bounds the time from the first attempt to
    the beginning of the last; None leaves that to the number of attempts.

    Errors that pass by themselves are retried (see ``failures.is_passing``); ``retry_on`` adds classes to them and
    ``give_up_on`` takes classes away, and wins. ``on_retry`` is told of each further attempt; what it raises is
    logged and changes nothing. A subclass may decide by itself in ``should_retry`` and ``get_delay``; when one of
    them raises, that is logged and the task is given up.
    """

    attempts: int = 1
    delay: float = 0.0
    factor: float = 2.0
    maximum: float = 3600.0
    jitter: float = 0.1
    budget: float | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    on_retry: OnRetry | None = None

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        """Whether attempt number ``attempt``, which failed with ``error``, is followed by another."""
        if attempt >= self.attempts or isinstance(error, GiveUp):
            return False
        if isinstance(error, RetryLater):
            return True
        if isinstance(error, self.give_up_on):
            return False
        return isinstance(error, self.retry_on) or is_passing(error)

    def get_delay(self, attempt: int) -> float:
        """Seconds to wait after attempt number ``attempt``, before the jitter."""
        return min(self.delay * self.factor ** (attempt - 1), self.maximum)

    def longest_delays(self) -> float:
        """The sum of all waits at their longest."""
        return sum(self.get_delay(attempt) for attempt in range(1, self.attempts)) * (1 + self.jitter)


NO_RETRY: Final = RetryPolicy()


def next_delay(
    policy: RetryPolicy,
    attempt: int,
    error: BaseException,
    *,
    spent: float,
    now_ms: int,
    rng: random.Random = _RANDOM,
) -> float | None:
    """Seconds until the next attempt, or None when there is none.

    ``spent`` is the time since the first attempt began; ``rng`` makes the jitter. The other side's ``Retry-After``
    can make the wait longer, never shorter; when it would end after the budget, the task is given up.
    """
    try:
        own = _own_delay(policy, attempt, error, rng)
    except Exception:  # noqa: BLE001 a policy that fails would fail after each attempt, and the task never end
        _log.exception("a retry policy failed: the task is given up", policy=type(policy).__name__, attempt=attempt)
        return None
    if own is None:
        return None
    delay = max(own, requested_wait(error, now_ms) or 0.0)
    if policy.budget is not None and spent + delay > policy.budget:
        return None
    return delay


def _own_delay(policy: RetryPolicy, attempt: int, error: BaseException, rng: random.Random) -> float | None:
    if not policy.should_retry(attempt, error):
        return None
    delay = policy.get_delay(attempt)
    if not (math.isfinite(delay) and delay > 0):
        raise ValueError(f"get_delay({attempt}) gives {delay}: it is the seconds before the next attempt")
    return delay * (1 + rng.uniform(-policy.jitter, policy.jitter))
