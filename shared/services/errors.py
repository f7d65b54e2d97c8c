"""Why a request cannot be served, independent of how it came in. The API maps each class to one status."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


class ServiceError(Exception):
    """The root; ``code`` is stable and public, the message is for people."""

    code = "error"


class NotFoundError(ServiceError):
    """Nothing with this id in this organisation; whether another one has it is not said.

    ``known`` are the names to choose from, where everybody may read those.
    """

    code = "not_found"

    def __init__(self, what: str, known: Iterable[str] = ()) -> None:
        names = ", ".join(sorted(known))
        super().__init__(f"there is no such {what}" + (f": name one of {names}" if names else ""))


class RevisionMismatchError(ServiceError):
    """The monitor changed since it was read."""

    code = "revision_mismatch"

    def __init__(self, revision: int) -> None:
        self.revision = revision
        super().__init__(f"the monitor is at revision {revision} by now: read it again and repeat your change")


class IdempotencyConflictError(ServiceError):
    """The same Idempotency-Key came with another request, or its first request is still running."""

    code = "idempotency_conflict"


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong field: where it is (dotted path) and what is wrong with it."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


MAX_PROBLEMS = 50
"""More are counted only: whoever sends a thousand wrong fields does not get an answer a thousand lines long."""


class InvalidInputError(ServiceError):
    """The input says something that cannot be done."""

    code = "validation_failed"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems[:MAX_PROBLEMS])
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        super().__init__("; ".join([*map(str, self.problems), *more]))

    @classmethod
    def of(cls, errors: Iterable[Mapping[str, Any]]) -> Self:
        """From what pydantic found (``ValidationError.errors()``)."""
        return cls([_problem(error) for error in errors])


# A rule over several fields has no place of its own; its message begins with the field to mend.
_LEADING_FIELD = re.compile(r"([a-z][a-z_]*)(?:: | (?=\())")
# The kind that pydantic puts behind these is how it chose a class; nobody wrote it there.
_CHOSEN_BY_KIND = frozenset({"check", "auth"})


def reason_of(error: Mapping[str, Any]) -> str:
    """What is wrong, in words for the one who wrote it."""
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    return str(error["msg"]).removeprefix("Value error, ")


def _problem(error: Mapping[str, Any]) -> Problem:
    place = _place(error["loc"])
    reason = reason_of(error)
    if isinstance(error.get("input"), dict) and (found := _LEADING_FIELD.match(reason)):
        place.append(found[1])
        reason = reason if reason[found.end()] == "(" else reason[found.end() :]
    return Problem(".".join(place), reason)


def _place(location: Sequence[int | str]) -> list[str]:
    previous = ["", *location]
    return [str(part) for before, part in zip(previous, location, strict=False) if before not in _CHOSEN_BY_KIND]


class IncidentResolvedError(ServiceError):
    """The incident is over: there is nothing to acknowledge or to resolve."""

    code = "incident_resolved"

    def __init__(self) -> None:
        super().__init__("the incident is resolved already")


class CheckDeskError(ServiceError):
    """A check could not be run on demand."""


class NoWorkerError(CheckDeskError):
    """No worker serves the region."""

    code = "no_worker"


class RunTimeoutError(CheckDeskError):
    """A worker took the check and its answer did not come in time."""

    code = "run_timeout"


class TooManyRunsError(ServiceError):
    """The organisation has as many checks running on demand as it may."""

    code = "too_many_runs"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} checks of this organisation are running on demand: wait for one to end")


class ReplayNotPossibleError(ServiceError):
    """A dead letter can't be sent again as it is, or not now."""

    code = "replay_not_possible"


class QueueUnavailableError(ServiceError):
    """NATS does not answer."""

    code = "queue_unavailable"
