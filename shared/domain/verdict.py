"""From judgements to one verdict, the same way for every kind of check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shared.domain.errors import CheckError, ErrorKind
from shared.domain.judge import Judgement
from shared.domain.result import CheckVerdict, ResultStatus

_MOST_TELLING = (ErrorKind.STATUS_CODE,)
_OURS = frozenset({ErrorKind.BLOCKED_TARGET, ErrorKind.CONFIG_ERROR, ErrorKind.INTERNAL_ERROR})
"""What keeps us from looking; it says nothing about the target."""


def verdict_of(
    judgements: Iterable[Judgement], error: CheckError | None, warning: CheckError | None = None
) -> CheckVerdict:
    """What stopped the check comes first, then a failed assertion that means down, then one that means degraded."""
    judged = list(judgements)
    down = error or _worst(judged, "down")
    degraded = _worst(judged, "degraded") or warning
    outcomes = tuple(each.outcome for each in judged)
    if down:
        return CheckVerdict(ResultStatus.DOWN, error=down, assertions=outcomes)
    if degraded:
        return CheckVerdict(ResultStatus.DEGRADED, error=degraded, assertions=outcomes)
    return CheckVerdict(ResultStatus.UP, assertions=outcomes)


def _worst(judged: list[Judgement], severity: str) -> CheckError | None:
    errors = [each.error for each in judged if each.error and each.outcome.severity == severity]
    # A wrong status explains a wrong body, hardly ever the other way round.
    return next((error for error in errors if error.kind in _MOST_TELLING), errors[0] if errors else None)


def inverted(verdict: CheckVerdict) -> CheckVerdict:
    """The verdict for a target that is meant to be down; failures of our own stay what they are."""
    if verdict.error is not None and verdict.error.kind in _OURS:
        return verdict
    if verdict.status is ResultStatus.DOWN:
        return replace(verdict, status=ResultStatus.UP, error=None)
    if verdict.status in {ResultStatus.UP, ResultStatus.DEGRADED}:
        error = CheckError(ErrorKind.ASSERTION_FAILED, "the target is up, and this check expects it to be down")
        return replace(verdict, status=ResultStatus.DOWN, error=error)
    return verdict
