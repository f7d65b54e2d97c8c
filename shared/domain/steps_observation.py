"""What a run of several requests showed, each step judged on the way: the next one depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.domain.result import CheckVerdict


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step. ``extracted`` is what may be shown of the values taken from its answer."""

    verdict: CheckVerdict
    extracted: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class StepsObservation:
    """The steps that were run, by name; those that are missing were skipped."""

    steps: Mapping[str, StepSeen]
