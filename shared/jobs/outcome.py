"""How a run of a job ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobStatus(StrEnum):
    """``succeeded`` and ``overran`` did their work; ``skipped`` and ``not_due`` did nothing."""

    SUCCEEDED = "succeeded"
    OVERRAN = "overran"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    SKIPPED = "skipped"
    NOT_DUE = "not_due"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What happened; ``error`` is one line. A ``lost`` run was overtaken by another, which counts instead."""

    name: str
    status: JobStatus
    duration_ms: int = 0
    processed: int = 0
    error: str | None = None

    @property
    def is_success(self) -> bool:
        return self.status in {JobStatus.SUCCEEDED, JobStatus.OVERRAN}
