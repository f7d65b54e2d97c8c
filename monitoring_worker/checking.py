"""One slot in a worker: run the check, or say why it was not run, and see the result off to storage."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import UUID

import structlog
from pydantic import ValidationError

from monitoring_worker.newer_checks import is_newer, without_unused
from shared.contracts.sealing import SealingError, StoredCheck
from shared.contracts.wire import CheckTask, ResultMessage, RunNow, RunNowAnswer, RunSpec
from shared.domain.checks import CheckSpec
from shared.domain.clock import Clock
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.result import CheckVerdict, ResultStatus, missed
from shared.observability import metrics

log = structlog.get_logger(__name__)

STALE_AFTER_MS = 30_000
_CACHED_SPECS = 5_000
_UNREADABLE = "the secrets of this check can't be opened with the keys of this worker"

# Publishes a result and returns once it is stored by the queue; retries until then.
ResultSink = Callable[[ResultMessage], Awaitable[None]]


class Runner(Protocol):
    """The check engine: turns any outcome into a verdict and never raises."""

    async def run(
        self,
        check: CheckSpec,
        *,
        timeout_seconds: float,
        retries: int,
        retry_delay_seconds: float,
        budget_seconds: float | None,
    ) -> CheckVerdict: ...


class Opener(Protocol):
    """Opens the sealed secrets of a stored check; raises ``SealingError``."""

    def open(self, stored: dict[str, Any]) -> CheckSpec: ...


class Doubter(Protocol):
    """Knows whether this worker sees the world."""

    async def doubt(self, began: float) -> str | None:
        """Why a failure of a check that began then (monotonic) is no evidence about its target, or None."""
        ...


class CheckDuty:
    """What a worker does with a slot."""

    def __init__(
        self,
        runner: Runner,
        opener: Opener,
        sink: ResultSink,
        clock: Clock,
        *,
        region: str,
        worker: str = "",
        canaries: Doubter | None = None,
    ) -> None:
        """``worker`` names this process in its results; without canaries every failure is the target's.

        ``running`` is the number of checks that run now, whoever asked for them.
        """
        self._runner, self._opener, self._sink = runner, opener, sink
        self._clock, self.region, self._worker = clock, region, worker
        self._canaries = canaries
        self._opened: OrderedDict[tuple[UUID, int], CheckSpec] = OrderedDict()
        self.running = 0

    async def scheduled(self, task: CheckTask) -> None:
        """Run a due slot and return when its result is in the queue. What waits there is not held here as well."""
        await self._sink(await self._outcome(task))

    async def _outcome(self, task: CheckTask) -> ResultMessage:
        """A slot that is too old is missed: its answer could not be given any more."""
        started_ms = self._clock.now_ms()
        if started_ms - task.slot_ms > max(task.interval_ms, STALE_AFTER_MS):
            late_s = (started_ms - task.slot_ms) // 1000
            verdict = missed(MissedReason.WORKER_GAP, f"a worker was free for this check only {late_s} s late")
            metrics.slots_missed.labels(MissedReason.WORKER_GAP.value).inc()
            return self._message(task, None, verdict)
        began = self._clock.monotonic()
        verdict = await self._run(task.run, (task.monitor_id, task.revision), task.interval_ms / 1000)
        return self._message(task, started_ms, await self._doubted(verdict, began))

    async def on_demand(self, request: RunNow) -> RunNowAnswer:
        """Run what a person waits for; the result of a saved monitor is stored like any other."""
        started_ms = self._clock.now_ms()
        place = (request.monitor_id, request.revision) if request.monitor_id else None
        began = self._clock.monotonic()
        verdict = await self._doubted(await self._run(request.run, place), began)
        if request.store and request.monitor_id:
            await self._sink(
                ResultMessage(
                    monitor_id=request.monitor_id,
                    revision=request.revision,
                    region=self.region,
                    slot_ms=started_ms,
                    started_at_ms=started_ms,
                    verdict=verdict,
                    trigger="manual",
                    worker=self._worker,
                )
            )
        return RunNowAnswer(self.region, started_ms, started_ms, verdict)

    async def _doubted(self, verdict: CheckVerdict, began: float) -> CheckVerdict:
        """A failure is no evidence from a worker that can't reach what it must be able to reach."""
        if self._canaries is None or verdict.status is not ResultStatus.DOWN:
            return verdict
        doubt = await self._canaries.doubt(began)
        if doubt is None:
            return verdict
        metrics.slots_missed.labels(MissedReason.WORKER_GAP.value).inc()
        return missed(MissedReason.WORKER_GAP, doubt)

    def _message(self, task: CheckTask, started_ms: int | None, verdict: CheckVerdict) -> ResultMessage:
        return ResultMessage(
            monitor_id=task.monitor_id,
            revision=task.revision,
            region=task.region,
            slot_ms=task.slot_ms,
            started_at_ms=started_ms,
            verdict=verdict,
            worker=self._worker,
        )

    async def _run(
        self, run: RunSpec, place: tuple[UUID, int] | None, budget_seconds: float | None = None
    ) -> CheckVerdict:
        try:
            check = self._open(run, place)
        except SealingError as error:
            log.error("a check can't be opened", monitor=place and str(place[0]), error=str(error))
            return CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONFIG_ERROR, _UNREADABLE))
        except ValidationError as error:
            return _unusable(error)
        began = self._clock.monotonic()
        with self._counted():
            verdict = await self._runner.run(
                check,
                timeout_seconds=run.timeout_seconds,
                retries=run.retries,
                retry_delay_seconds=run.retry_delay_seconds,
                budget_seconds=budget_seconds,
            )
        if verdict.error and verdict.error.kind is ErrorKind.OVERLOADED:
            metrics.slots_missed.labels(MissedReason.OVERLOADED.value).inc()
        metrics.checks.labels(check.kind, verdict.status.value).inc()
        metrics.check_duration.labels(check.kind).observe(self._clock.monotonic() - began)
        return verdict

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.running += 1
        try:
            with metrics.checks_in_flight.track_inprogress():
                yield
        finally:
            self.running -= 1

    def _open(self, run: RunSpec, place: tuple[UUID, int] | None) -> CheckSpec:
        """The check with its secrets, remembered per revision: opening costs more than a small check."""
        if place is None:
            return self._open_stored(run.check)
        if place in self._opened:
            self._opened.move_to_end(place)
            return self._opened[place]
        check = self._opened[place] = self._open_stored(run.check)
        if len(self._opened) > _CACHED_SPECS:
            self._opened.popitem(last=False)
        return check

    def _open_stored(self, stored: StoredCheck) -> CheckSpec:
        try:
            return self._opener.open(stored)
        except ValidationError as error:
            if (known := without_unused(stored, error)) is None:
                raise
            return self._opener.open(known)


def _unusable(error: ValidationError) -> CheckVerdict:
    """The verdict on a stored check that today's rules refuse. Names the field, never its value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if is_newer(error):
        metrics.slots_missed.labels(MissedReason.WORKER_GAP.value).inc()
        told = f"this worker is older than the check and does not know {field}: upgrade the workers"
        return missed(MissedReason.WORKER_GAP, told)
    message = f"the check can't be run: {field}: {first['msg']}"
    return CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONFIG_ERROR, message))
