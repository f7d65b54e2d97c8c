"""One slot of a check: attempts, retries, verdict. What goes wrong in here is never held against the target."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from monitoring_worker.probes.judging import beside_the_loop
from monitoring_worker.probes.registry import build_probes
from shared.domain.checks import AnyCheck
from shared.domain.clock import Clock, SystemClock
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.evaluate import evaluate, is_laborious
from shared.domain.monitor import RETRY_SPREAD
from shared.domain.redaction import hide, scrub, secrets_of
from shared.domain.result import Attempt, CheckVerdict, Evidence, ResultStatus, missed
from shared.http.door import Door
from shared.http.errors import OverloadedError
from shared.http.guard import AddressPolicy
from shared.http.resolver import Resolver, SystemResolver

_log = structlog.get_logger(__name__)

_FINAL = frozenset({ErrorKind.BLOCKED_TARGET, ErrorKind.CONFIG_ERROR})
"""Failures that another attempt cannot change."""


class CheckRunner:
    """Runs checks, any number at the same time: how many is for the worker to decide."""

    def __init__(
        self,
        policy: AddressPolicy,
        clock: Clock | None = None,
        *,
        resolver: Resolver | None = None,
        ca_file: Path | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """By default the machine's clock and name service; ``ca_file`` replaces its trusted roots.

        ``jitter`` gives numbers from 0 to 1 that spread the delay before a retry by ±10 %.
        """
        self._jitter = jitter
        self._clock = clock or SystemClock()
        door = Door(policy, self._clock.monotonic, resolver or SystemResolver(), ca_file)
        self._probes = build_probes(door, self._clock)

    async def run(
        self,
        check: AnyCheck,
        *,
        timeout_seconds: float,
        retries: int = 0,
        retry_delay_seconds: float = 1.0,
        budget_seconds: float | None = None,
    ) -> CheckVerdict:
        """Observe and judge until an attempt is not down, or none is left; the last one decides.

        Each attempt has ``timeout_seconds``. With a budget (seconds for all of them, such as the interval) a retry
        that might not end within it is not begun. Never raises but on cancellation.
        """
        began = self._clock.monotonic()
        verdict = await self._attempt(check, timeout_seconds)
        if not retries or not _worth_a_retry(verdict):
            return _with_attempts(verdict, [])
        longest = retry_delay_seconds * (1 + RETRY_SPREAD) + timeout_seconds
        attempts = [_recorded(verdict, 0.0)]
        while len(attempts) <= retries and _worth_a_retry(verdict):
            now = self._clock.monotonic() - began
            if budget_seconds is not None and now + longest > budget_seconds:
                break
            await asyncio.sleep(retry_delay_seconds * (1 + RETRY_SPREAD * (2 * self._jitter() - 1)))
            started = self._clock.monotonic() - began
            verdict = await self._attempt(check, timeout_seconds)
            attempts.append(_recorded(verdict, started))
        return _with_attempts(verdict, attempts)

    async def _attempt(self, check: AnyCheck, timeout_seconds: float) -> CheckVerdict:
        try:
            observation = await self._probes[type(check)].observe(check, timeout_seconds)
            judge = partial(evaluate, check, observation, self._clock.now_ms())
            return await beside_the_loop(judge) if is_laborious(check, observation) else judge()
        except OverloadedError as error:
            _log.error("a check could not be run", kind=check.kind, reason=str(error))
            return missed(MissedReason.OVERLOADED, str(error))
        except Exception as error:  # noqa: BLE001 - our own fault, whatever it is, must not look like an outage
            trace = hide(scrub(traceback.format_exc()), secrets_of(check))
            _log.error("check failed inside the engine", kind=check.kind, trace=trace)  # not .exception: see trace
            name = type(error).__name__
            return CheckVerdict(
                ResultStatus.MISSED,
                error=CheckError(
                    ErrorKind.INTERNAL_ERROR, f"the checker itself failed ({name}); its log has the details"
                ),
            )


def _worth_a_retry(verdict: CheckVerdict) -> bool:
    return verdict.status is ResultStatus.DOWN and verdict.error is not None and verdict.error.kind not in _FINAL


def _recorded(verdict: CheckVerdict, started_seconds: float) -> Attempt:
    return Attempt(round(started_seconds * 1000, 3), verdict.timings_ms.total, verdict.error)


def _with_attempts(verdict: CheckVerdict, attempts: list[Attempt]) -> CheckVerdict:
    """The deciding verdict, which tells of all attempts as soon as one of them was not well."""
    if not attempts:
        if verdict.status is ResultStatus.UP:
            return verdict
        attempts = [_recorded(verdict, 0.0)]
    evidence = replace(verdict.evidence or Evidence(), attempts=tuple(attempts))
    return replace(verdict, attempts=len(attempts), evidence=evidence)
