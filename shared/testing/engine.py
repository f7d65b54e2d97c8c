"""A check engine that runs nothing: a test says what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.domain.checks import CheckSpec
from shared.domain.result import CheckVerdict, ResultStatus


@dataclass(slots=True)
class FakeEngine:
    """Answers ``verdict`` and remembers what it was asked: check, timeout, retries, delay and budget in seconds."""

    verdict: CheckVerdict = field(default_factory=lambda: CheckVerdict(ResultStatus.UP))
    asked: list[tuple[CheckSpec, float, int, float, float | None]] = field(default_factory=list)

    async def run(
        self,
        check: CheckSpec,
        *,
        timeout_seconds: float,
        retries: int,
        retry_delay_seconds: float,
        budget_seconds: float | None,
    ) -> CheckVerdict:
        self.asked.append((check, timeout_seconds, retries, retry_delay_seconds, budget_seconds))
        return self.verdict
