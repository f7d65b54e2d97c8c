"""One slot of a check: attempts, retries, verdict. What goes wrong in here is never held against the target."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import structlog

from monitoring_worker.probes.registry import build_probes
from shared.domain.checks import HttpCheck, SslCheck
from shared.domain.clock import Clock, SystemClock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evaluate import evaluate
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.door import Door
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
    ) -> None:
        """By default the machine's clock and name service; ``ca_file`` replaces its trusted roots."""
        self._clock = clock or SystemClock()
        door = Door(policy, self._clock.monotonic, resolver or SystemResolver(), ca_file)
        self._probes = build_probes(door, self._clock)

    async def run(
        self,
        check: HttpCheck | SslCheck,
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
        deadline = None if budget_seconds is None else self._clock.monotonic() + budget_seconds
        verdict = await self._attempt(check, timeout_seconds)
        for attempt in range(2, retries + 2):
            if not _worth_a_retry(verdict):
                break
            if deadline is not None and self._clock.monotonic() + retry_delay_seconds + timeout_seconds > deadline:
                break
            await asyncio.sleep(retry_delay_seconds)
            verdict = replace(await self._attempt(check, timeout_seconds), attempts=attempt)
        return verdict

    async def _attempt(self, check: HttpCheck | SslCheck, timeout_seconds: float) -> CheckVerdict:
        try:
            observation = await self._probes[type(check)].observe(check, timeout_seconds)
            return evaluate(check, observation, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - our own fault, whatever it is, must not look like an outage
            _log.exception("check failed inside the engine", kind=check.kind)
            name = type(error).__name__
            return CheckVerdict(
                ResultStatus.MISSED,
                error=CheckError(
                    ErrorKind.INTERNAL_ERROR, f"the checker itself failed ({name}); its log has the details"
                ),
            )


def _worth_a_retry(verdict: CheckVerdict) -> bool:
    return verdict.status is ResultStatus.DOWN and verdict.error is not None and verdict.error.kind not in _FINAL
