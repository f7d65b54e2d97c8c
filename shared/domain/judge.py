"""One assertion against the values it found: passed or not, and the sentence that says why."""

from __future__ import annotations

import operator as standard
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.domain.assertions import Assertion, Operator, status_text
from shared.domain.comparison import (
    NotComparableError,
    bounded,
    contains,
    is_empty,
    is_in,
    matches,
    ordered,
    quoted,
    same,
)
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import AssertionOutcome
from shared.domain.status_ranges import parse_status_ranges


class UnreadableError(Exception):
    """The source of an assertion cannot be read from this answer at all."""

    def __init__(self, error: CheckError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome for the result; ``error`` is set when it did not pass."""

    outcome: AssertionOutcome
    error: CheckError | None = None


_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUALS: same,
    Operator.NOT_EQUALS: lambda actual, expected: not same(actual, expected),
    Operator.LESS: ordered(standard.lt),
    Operator.LESS_OR_EQUAL: ordered(standard.le),
    Operator.GREATER: ordered(standard.gt),
    Operator.GREATER_OR_EQUAL: ordered(standard.ge),
    Operator.IN: is_in,
    Operator.NOT_IN: lambda actual, expected: not is_in(actual, expected),
    Operator.CONTAINS: contains,
    Operator.NOT_CONTAINS: lambda actual, expected: not contains(actual, expected),
    Operator.MATCHES: matches,
    Operator.EMPTY: lambda actual, expected: is_empty(actual) is expected,
}
_WORDS = {
    Operator.EQUALS: "expected {}",
    Operator.NOT_EQUALS: "expected anything but {}",
    Operator.LESS: "expected less than {}",
    Operator.LESS_OR_EQUAL: "expected at most {}",
    Operator.GREATER: "expected more than {}",
    Operator.GREATER_OR_EQUAL: "expected at least {}",
    Operator.IN: "expected one of {}",
    Operator.NOT_IN: "expected none of {}",
    Operator.CONTAINS: "expected it to contain {}",
    Operator.NOT_CONTAINS: "expected it not to contain {}",
    Operator.MATCHES: "expected it to match {}",
}
_KEYWORD_KINDS = {
    Operator.CONTAINS: ErrorKind.KEYWORD_MISSING,
    Operator.NOT_CONTAINS: ErrorKind.KEYWORD_PRESENT,
}


def judge(assertion: Assertion, values: list[Any]) -> Judgement:
    """Judge what was found; each of several values has to pass. No value at all fails everything but ``exists``."""
    operator, expected = assertion.operator, _expected(assertion)
    if operator is Operator.EXISTS:
        if bool(values) is expected:
            return passed(assertion, bool(values))
        wording = "does not exist" if expected else "exists, and should not"
        return failed(assertion, bool(values), _error(assertion, wording, missing=not values))
    if not values:
        return failed(assertion, None, _error(assertion, "does not exist", missing=True))
    for value in values:
        try:
            if _COMPARE[operator](value, expected):
                continue
            wording = _wording(assertion, value, expected)
        except NotComparableError as error:
            wording = f"is {quoted(value)}: {error}"
        except RecursionError:
            wording = "is nested too deeply to be compared"
        return failed(assertion, value, _error(assertion, wording))
    return passed(assertion, values[0] if len(values) == 1 else values)


def failed(assertion: Assertion, actual: Any, error: CheckError | None) -> Judgement:
    """A judgement that did not pass; without an error the check never came as far as this assertion."""
    return Judgement(_outcome(assertion, actual, passed=False, message=error.message if error else None), error)


def passed(assertion: Assertion, actual: Any) -> Judgement:
    """A judgement without fault."""
    return Judgement(_outcome(assertion, actual, passed=True, message=None))


def _outcome(assertion: Assertion, actual: Any, *, passed: bool, message: str | None) -> AssertionOutcome:
    return AssertionOutcome(
        source=assertion.source,
        operator=assertion.operator.value,
        expected=bounded(assertion.value),
        actual=bounded(actual),
        passed=passed,
        path=assertion.path,
        severity=assertion.severity,
        message=message,
    )


def _expected(assertion: Assertion) -> Any:
    if assertion.operator in {Operator.EXISTS, Operator.EMPTY}:
        return assertion.value is not False
    if assertion.source == "status" and assertion.operator in {Operator.IN, Operator.NOT_IN}:
        return parse_status_ranges(status_text(assertion.value))
    return assertion.value


def _wording(assertion: Assertion, actual: Any, expected: Any) -> str:
    if assertion.operator is Operator.EMPTY:
        return "is not empty" if expected else "is empty"
    if assertion.source == "body" and assertion.operator in _KEYWORD_KINDS:
        verb = "does not contain" if assertion.operator is Operator.CONTAINS else "contains"
        return f"{verb} {quoted(expected)}"
    return f"is {quoted(actual)}, {_WORDS[assertion.operator].format(quoted(expected))}"


def _error(assertion: Assertion, wording: str, *, missing: bool = False) -> CheckError:
    return CheckError(_kind(assertion, missing=missing), f"{_subject(assertion)} {wording}")


def _kind(assertion: Assertion, *, missing: bool) -> ErrorKind:
    if assertion.source == "status":
        return ErrorKind.STATUS_CODE
    if assertion.source == "body":
        return _KEYWORD_KINDS.get(assertion.operator, ErrorKind.ASSERTION_FAILED)
    if assertion.source == "json" and missing:
        return ErrorKind.JSON_PATH_MISSING
    return ErrorKind.ASSERTION_FAILED


def _subject(assertion: Assertion) -> str:
    if assertion.source == "json":
        return str(assertion.path)
    if assertion.source == "header":
        return f"header {assertion.path}"
    if assertion.source == "timing":
        return f"the time of {assertion.path} in milliseconds"
    return _SUBJECTS[assertion.source]


_SUBJECTS = {
    "status": "status",
    "body": "the body",
    "response_time_ms": "the response time in milliseconds",
    "certificate_days_left": "the number of days left on the certificate",
    "body_bytes": "the size of the body in bytes",
    "final_url": "the final URL",
    "redirects": "the number of redirects",
    "remote_address": "the address of the server",
    "http_version": "the version of HTTP",
}
