"""What happened in a pipeline, step by step and attempt by attempt; JSON, so that any worker can go on from it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shared.domain.comparison import well_formed
from shared.domain.errors import MESSAGE_LIMIT
from shared.domain.redaction import scrub

StepState = Literal["waiting", "running", "done", "failed"]
FINISHED_STATES = frozenset({"done", "failed"})
WORKER_LOST = "worker_lost"


class StepFailedError(Exception):
    """Raised by a step that says itself how its attempt failed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class StepFailure(msgspec.Struct, frozen=True):
    """Why an attempt failed: a short word for the kind of error, and its message, bounded."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> StepFailure:
        """How an error is told, without the secrets that URLs carry."""
        if isinstance(error, StepFailedError):
            return cls(error.kind, scrub(well_formed(error.message))[:MESSAGE_LIMIT])
        # Loaded when needed: it knows the errors of database and queue, and checks do without both.
        from shared.tasks.failures import kind_of, message_of  # noqa: PLC0415

        return cls(kind_of(error), message_of(error))


class StepAttempt(msgspec.Struct, frozen=True):
    """One attempt. Without an end it is under way, or its worker has died."""

    started_ms: int
    ended_ms: int | None = None
    error: StepFailure | None = None

    @property
    def duration_ms(self) -> int:
        return 0 if self.ended_ms is None else self.ended_ms - self.started_ms


class StepRecord(msgspec.Struct, frozen=True):
    """All attempts at one step. ``value`` is what the step gave, ``next_ms`` when its retry is due.

    ``expired`` is the failure of a step that had no time left for an attempt.
    """

    attempts: tuple[StepAttempt, ...] = ()
    state: StepState = "waiting"
    value: Any = None
    next_ms: int | None = None
    expired: StepFailure | None = None

    @property
    def error(self) -> StepFailure | None:
        """The last failure; null when there is none, or the step was mended by a retry."""
        if self.state == "done":
            return None
        return self.expired or next((each.error for each in reversed(self.attempts) if each.error), None)

    @property
    def began_ms(self) -> int | None:
        return self.attempts[0].started_ms if self.attempts else None

    @property
    def interruptions(self) -> int:
        return sum(1 for each in self.attempts if each.error and each.error.kind == WORKER_LOST)

    @property
    def counted(self) -> int:
        """Attempts that count for the policy."""
        return len(self.attempts) - self.interruptions


_NOT_BEGUN = StepRecord()


class PipelineRecord(msgspec.Struct, frozen=True):
    """A run of a pipeline; steps that have not begun have no entry. ``run`` tells runs of one task id apart."""

    started_ms: int
    steps: dict[str, StepRecord] = {}
    run: str = ""

    def of(self, name: str) -> StepRecord:
        return self.steps.get(name, _NOT_BEGUN)

    def has_failed(self, name: str) -> bool:
        return self.of(name).state == "failed"

    def having(self, name: str, seen: StepRecord) -> PipelineRecord:
        """The record with another state of one step."""
        return msgspec.structs.replace(self, steps={**self.steps, name: seen})
