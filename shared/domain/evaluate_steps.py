"""The verdict on kind ``http_steps``: each step like a check of kind ``http``, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from shared.domain import evaluate_http
from shared.domain.checks_steps import HttpStep, HttpStepsCheck, StepRequest
from shared.domain.comparison import bounded
from shared.domain.errors import CheckError
from shared.domain.evidence import http_evidence
from shared.domain.observation import HttpObservation
from shared.domain.redaction import MASK, hide, scrub
from shared.domain.result import CheckVerdict, HttpFacts, ResultStatus, StepResult, Timings
from shared.domain.steps_extract import Extracted
from shared.domain.steps_observation import StepSeen, StepsObservation
from shared.domain.steps_template import text_of

SHOWN_URL = 300
"""Characters of each URL inside a step: there may be twenty steps of twenty redirects."""

_RANK = {ResultStatus.UP: 0, ResultStatus.DEGRADED: 1, ResultStatus.DOWN: 2}


def step(request: StepRequest, seen: HttpObservation, extracted: Extracted, now_ms: int) -> StepSeen:
    """Judge one step. ``seen.secrets`` has to hold the secret values of all variables, those just taken too."""
    verdict = evaluate_http.http(request, seen, now_ms)
    secrets = request.secrets + seen.secrets
    if extracted.error and verdict.status is not ResultStatus.DOWN:
        error = CheckError(extracted.error.kind, hide(extracted.error.message, secrets))
        evidence = http_evidence(seen, secrets)
        verdict = replace(verdict, status=ResultStatus.DOWN, error=error, evidence=evidence)
    return StepSeen(verdict, _shown(request, extracted, secrets))


def _shown(request: StepRequest, extracted: Extracted, secrets: tuple[str, ...]) -> dict[str, str]:
    hidden = {each.name for each in request.extract if each.is_secret}
    return {
        name: MASK if name in hidden else str(bounded(hide(scrub(text_of(value)), secrets)))
        for name, value in extracted.values.items()
    }


def http_steps(spec: HttpStepsCheck, seen: StepsObservation, _: int) -> CheckVerdict:
    """The worst step decides, of several the first one. Times are the sums over all steps."""
    ran = [(each, seen.steps[each.name]) for each in spec.every_step if each.name in seen.steps]
    deciding, decided = _deciding(spec, ran)
    verdict = decided.verdict
    error = verdict.error and CheckError(verdict.error.kind, f"step {deciding.name!r}: {verdict.error.message}")
    return replace(
        verdict,
        error=error,
        timings_ms=_sum(each.verdict.timings_ms for _, each in ran),
        steps=tuple(_result(each, seen.steps.get(each.name)) for each in spec.every_step),
    )


def _deciding(spec: HttpStepsCheck, ran: list[tuple[HttpStep, StepSeen]]) -> tuple[HttpStep, StepSeen]:
    """The step that decides; when all is well the last one, which the cleanup is not."""
    worst = max(_RANK[seen.verdict.status] for _, seen in ran)
    if worst:
        return next(pair for pair in ran if _RANK[pair[1].verdict.status] == worst)
    return next(pair for pair in reversed(ran) if pair[0] is not spec.cleanup)


def _sum(each: Iterable[Timings]) -> Timings:
    every = list(each)
    return Timings(
        **{phase.name: round(sum(getattr(one, phase.name) for one in every), 3) for phase in fields(Timings)}
    )


def _result(spec: HttpStep, seen: StepSeen | None) -> StepResult:
    if seen is None:
        return StepResult(spec.name, skipped=True)
    verdict = seen.verdict
    return StepResult(
        spec.name,
        status=verdict.status,
        error=verdict.error,
        timings_ms=verdict.timings_ms,
        http=verdict.http and _short(verdict.http),
        assertions=verdict.assertions,
        attempts=seen.attempts,
        extracted=dict(seen.extracted),
    )


def _short(facts: HttpFacts) -> HttpFacts:
    redirects = tuple(replace(hop, url=_cut(hop.url)) for hop in facts.redirects)
    return replace(facts, redirects=redirects, final_url=facts.final_url and _cut(facts.final_url))


def _cut(url: str) -> str:
    return url if len(url) <= SHOWN_URL else f"{url[: SHOWN_URL - 1]}…"
