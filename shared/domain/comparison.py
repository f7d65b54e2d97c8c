"""How values are compared: by type first, so that "0", 0, false, null and [] stay five different things."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from shared.domain import effort
from shared.domain.effort import TooMuchEffortError
from shared.domain.status_ranges import StatusRanges

MAX_PATTERN = 1000
ACTUAL_LIMIT = 200
_LARGEST_INTEGER = 2**64 - 1


PATTERN_MEMORY = 2 * 1024 * 1024
"""Bytes that a pattern may take, with what it learns about the texts that it is held against."""

KEPT_PATTERNS = 256
"""Patterns that are kept ready: together they take half a GiB at the very worst, and a few MiB nearly always."""


class NotComparableError(Exception):
    """A value has a type that the operator cannot judge; the text says which."""


@lru_cache(maxsize=KEPT_PATTERNS)
def compile_pattern(pattern: str) -> Any:
    """Compile with RE2, which is linear in the text; raises ``ValueError`` that says what RE2 refuses."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")
    try:
        return re2.compile(pattern, pattern_options())
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "unknown"
        raise ValueError(
            f"the pattern is not an RE2 expression ({reason}); look-around and back-references do not exist there"
        ) from None


def pattern_options() -> Any:
    """How patterns are compiled, those of banners too."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    return options


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    """JSON equality without conversions; 1 and 1.0 are one number, integers are exact at any size."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of two numbers that refuses everything else instead of converting it."""

    def judge(actual: Any, expected: Any) -> bool:
        if not is_number(actual):
            raise NotComparableError(f"{type_name(actual)} cannot be compared with a number")
        return compare(actual, expected)

    return judge


def is_in(actual: Any, expected: Any) -> bool:
    if isinstance(expected, StatusRanges):
        return actual in expected
    return any(same(actual, candidate) for candidate in expected)


def contains(actual: Any, expected: Any) -> bool:
    if isinstance(actual, str) and isinstance(expected, str):
        return expected in actual
    if isinstance(actual, list):
        return any(same(item, expected) for item in actual)
    if isinstance(actual, dict) and isinstance(expected, str):
        return expected in actual
    raise NotComparableError(f"{type_name(actual)} cannot contain {type_name(expected)}")


def matches(actual: Any, expected: Any) -> bool:
    if not isinstance(actual, str):
        raise NotComparableError(f"a pattern needs text, this is {type_name(actual)}")
    try:
        return found_in(actual, expected) is not None
    except TooMuchEffortError as error:
        raise NotComparableError(str(error)) from None


def found_in(text: str, pattern: str) -> Any:
    """The first match of a pattern, or null; raises ``TooMuchEffortError``."""
    compiled = compile_pattern(pattern)
    effort.match(compiled.programsize, len(text))
    return compiled.search(well_formed(text))


def is_empty(actual: Any) -> bool:
    if isinstance(actual, str | list | dict):
        return not actual
    raise NotComparableError(f"{type_name(actual)} is neither empty nor filled")


def type_name(value: object) -> str:
    """The JSON type of a value, with its article, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, dict) else "a number"


def well_formed(text: str) -> str:
    """Text that every codec and database takes: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def bounded(value: Any, limit: int = ACTUAL_LIMIT) -> Any:
    """A value as a result may carry it: short, well-formed and within what JSON readers take."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):  # JSON has no word for what 1e999 becomes
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_INTEGER else bounded(str(value), limit)
    if isinstance(value, StatusRanges):
        return value.text
    if isinstance(value, str):
        return well_formed(value if len(value) <= limit else value[: limit - 1] + "…")
    shown = json.dumps(value, ensure_ascii=False)
    return json.loads(well_formed(shown), parse_constant=str) if len(shown) <= limit else bounded(shown, limit)


def quoted(value: Any, limit: int = 80) -> str:
    """A value inside a sentence."""
    return str(
        bounded(json.dumps(value, ensure_ascii=False) if not isinstance(value, StatusRanges) else value, limit)
    )
