"""What the doctor found, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from shared.services.doctor.findings import Outcome, Severity

_MARKS = {Severity.FAULT: "✘", Severity.WARNING: "!", Severity.NOTE: "·"}


def is_sound(outcomes: Sequence[Outcome]) -> bool:
    """Whether there is neither a fault nor a warning; a note is none."""
    return not any(_counts(outcomes)[severity] for severity in (Severity.FAULT, Severity.WARNING))


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One line per check, two more per finding, and the sum."""
    for outcome in outcomes:
        if outcome.skipped is not None:
            yield f"- {outcome.name}: not looked at, {outcome.skipped}"
        elif not outcome.findings:
            yield f"✔ {outcome.name}"
        for finding in outcome.findings:
            yield f"{_MARKS[finding.severity]} {outcome.name}: {finding.what}"
            yield f"  → {finding.mend}"
    yield ""
    yield _sum(outcomes)


def document(outcomes: Sequence[Outcome]) -> str:
    """The same as JSON."""
    counts = _counts(outcomes)
    checks = [
        {
            "name": outcome.name,
            "findings": [{**asdict(finding), "severity": finding.severity.value} for finding in outcome.findings],
            "skipped": outcome.skipped,
        }
        for outcome in outcomes
    ]
    sums = {"faults": counts[Severity.FAULT], "warnings": counts[Severity.WARNING]}
    return json.dumps({"sound": is_sound(outcomes), **sums, "checks": checks}, indent=2, ensure_ascii=False)


def _sum(outcomes: Sequence[Outcome]) -> str:
    counts = _counts(outcomes)
    made = sum(outcome.skipped is None for outcome in outcomes)
    left = len(outcomes) - made
    found = " and ".join(
        _plural(counts[severity], severity.value)
        for severity in (Severity.FAULT, Severity.WARNING)
        if counts[severity]
    )
    return f"{found or 'Nothing wrong'} in {_plural(made, 'check')}" + (f"; {left} not made" if left else "")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _counts(outcomes: Sequence[Outcome]) -> Counter[Severity]:
    return Counter(finding.severity for outcome in outcomes for finding in outcome.findings)
