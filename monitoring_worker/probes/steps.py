"""The probe of kind ``http_steps``: a pipeline whose steps are requests of the http probe."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from monitoring_worker.probes.http import HttpProbe
from monitoring_worker.probes.judging import beside_the_loop
from shared.domain import evaluate_steps
from shared.domain.checks_steps import HttpStep, HttpStepsCheck
from shared.domain.clock import Clock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.redaction import forms_of, hide, scrub
from shared.domain.result import CheckVerdict, ResultStatus
from shared.domain.steps_extract import UnfitValueError, extract, request_of
from shared.domain.steps_observation import StepSeen, StepsObservation
from shared.domain.steps_template import Value, text_of
from shared.http.cookies import CookieJar
from shared.tasks.pipeline import Pipeline, Step
from shared.tasks.pipeline_record import PipelineRecord, StepFailedError
from shared.tasks.pipeline_run import MemoryJournal, run_pipeline


class StepsProbe:
    """Makes observations; nothing is kept from one to the next."""

    def __init__(self, http: HttpProbe, clock: Clock) -> None:
        self._http = http
        self._clock = clock

    async def observe(self, spec: HttpStepsCheck, timeout_seconds: float) -> StepsObservation:
        """All steps, the cleanup too, within the timeout. Raises ``EngineFaultError`` for a fault of our own."""
        walk = _Walk(spec, self._http, self._clock)
        record = await run_pipeline(_pipeline(spec, timeout_seconds), walk.attempt, MemoryJournal(), self._now_ms)
        return walk.observation(record)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


class EngineFaultError(Exception):
    """A step failed for a reason that is not the target's; the message is a trace without the secrets in use."""


def _pipeline(spec: HttpStepsCheck, timeout_seconds: float) -> Pipeline:
    return Pipeline(
        tuple(Step(each.name, on_error=each.on_error) for each in spec.steps),
        timeout_seconds,
        cleanup=Step(spec.cleanup.name) if spec.cleanup else None,
    )


class _Walk:
    """One run: its cookies, the values of its variables, and what has been seen."""

    def __init__(self, spec: HttpStepsCheck, http: HttpProbe, clock: Clock) -> None:
        self._steps = {step.name: step for step in spec.every_step}
        self._http = http
        self._clock = clock
        self._jar = CookieJar(clock.now_ms())
        self._values: dict[str, Value] = spec.given
        self._secret = {*spec.secrets, *(e.name for step in spec.every_step for e in step.extract if e.is_secret)}
        self._secret_texts = set(spec.secrets.values())
        self._seen: dict[str, StepSeen] = {}
        self._fault: str | None = None

    async def attempt(self, step: Step, _: PipelineRecord, seconds: float) -> None:
        """Ask, judge and keep; raises ``StepFailedError`` when the step is down."""
        try:
            seen = self._seen[step.name] = await self._observed(self._steps[step.name], seconds)
        except Exception:
            # The pipeline goes on to its cleanup; what happened is told when it is over.
            self._fault = hide(scrub(traceback.format_exc()), self._secrets)
            raise
        error = seen.verdict.error
        if seen.verdict.status is ResultStatus.DOWN and error:
            raise StepFailedError(error.kind.value, error.message)

    async def _observed(self, step: HttpStep, seconds: float) -> StepSeen:
        try:
            request = request_of(step, self._values, frozenset(self._secret))
        except UnfitValueError as unfit:
            return _unsent(hide(str(unfit), self._secrets))
        seen = await self._http.observe(request, seconds, self._jar)
        extracted = await beside_the_loop(partial(extract, request, seen, self._jar.values()))
        self._keep(extracted.values)
        seen = replace(seen, secrets=seen.secrets + self._secrets)
        return await beside_the_loop(partial(evaluate_steps.step, request, seen, extracted, self._clock.now_ms()))

    def _keep(self, values: Mapping[str, Value]) -> None:
        self._values.update(values)
        self._secret_texts |= {text_of(value) for name, value in values.items() if name in self._secret}

    @property
    def _secrets(self) -> tuple[str, ...]:
        return forms_of(self._secret_texts)

    def observation(self, record: PipelineRecord) -> StepsObservation:
        """What has been seen; raises ``EngineFaultError``."""
        if self._fault:
            raise EngineFaultError(self._fault)
        for name, each in record.steps.items():
            if each.expired:
                self._seen[name] = StepSeen(_down(ErrorKind.TIMEOUT, each.expired.message), attempts=0)
        return StepsObservation(self._seen)


def _unsent(message: str) -> StepSeen:
    return StepSeen(_down(ErrorKind.CONFIG_ERROR, message))


def _down(kind: ErrorKind, message: str) -> CheckVerdict:
    return CheckVerdict(ResultStatus.DOWN, error=CheckError(kind, message))
