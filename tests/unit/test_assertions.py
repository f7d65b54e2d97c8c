"""An assertion that could never be judged is refused where it is written, and the field is named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from shared.domain.assertions import OPERATORS, Assertion, Operator


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"source": "status", "operator": "contains", "value": "2"}, "operator", "eq, ne"),
        ({"source": "status", "operator": "exists"}, "operator", "status"),
        ({"source": "body", "operator": "lt", "value": 5}, "operator", "body"),
        ({"source": "body", "operator": "exists"}, "operator", "body"),
        ({"source": "header", "path": "x", "operator": "lt", "value": 5}, "operator", "header"),
        ({"source": "response_time_ms", "operator": "eq", "value": 5}, "operator", "lt, lte"),
        ({"source": "certificate_days_left", "operator": "matches", "value": "5"}, "operator", "lt, lte"),
        ({"source": "json", "operator": "exists"}, "path", "JSON path"),
        ({"source": "header", "operator": "exists"}, "path", "name of the header"),
        ({"source": "header", "path": "", "operator": "exists"}, "path", "name of the header"),
        ({"source": "header", "path": "a b", "operator": "exists"}, "path", "not a header name"),
        ({"source": "body", "path": "$.a", "operator": "empty"}, "path", "no path"),
        ({"source": "status", "path": "x", "operator": "eq", "value": 200}, "path", "no path"),
        ({"source": "json", "path": "a.b", "operator": "exists"}, "path", "'$'"),
        ({"source": "json", "path": "$.a[", "operator": "exists"}, "path", "RFC 9535"),
        ({"source": "json", "path": "$.", "operator": "exists"}, "path", "RFC 9535"),
        ({"source": "json", "path": "$..a..b", "operator": "exists"}, "path", "once"),
        ({"source": "json", "path": "$[?nope(@.a)]", "operator": "exists"}, "path", "RFC 9535"),
        ({"source": "json", "path": "$.a", "operator": "lt", "value": "5"}, "value", "without quotes"),
        ({"source": "json", "path": "$.a", "operator": "lt", "value": True}, "value", "number"),
        ({"source": "json", "path": "$.a", "operator": "lt"}, "value", "number"),
        ({"source": "json", "path": "$.a", "operator": "lt", "value": float("nan")}, "value", "finite"),
        ({"source": "json", "path": "$.a", "operator": "eq", "value": float("inf")}, "value", "finite"),
        ({"source": "json", "path": "$.a", "operator": "ne", "value": [{"b": -math.inf}]}, "value", "finite"),
        ({"source": "json", "path": "$.a", "operator": "in", "value": "abc"}, "value", "list"),
        ({"source": "json", "path": "$.a", "operator": "in", "value": []}, "value", "list"),
        ({"source": "json", "path": "$.a", "operator": "exists", "value": "yes"}, "value", "true or false"),
        ({"source": "json", "path": "$.a", "operator": "contains", "value": ""}, "value", "empty one"),
        ({"source": "header", "path": "x", "operator": "in", "value": [1]}, "value", "text"),
        ({"source": "header", "path": "x", "operator": "eq", "value": 1}, "value", "text"),
        ({"source": "body", "operator": "contains", "value": ""}, "value", "empty one"),
        ({"source": "body", "operator": "contains"}, "value", "text"),
        ({"source": "body", "operator": "matches", "value": "(?=x)"}, "value", "RE2"),
        ({"source": "body", "operator": "matches", "value": r"(a)\1"}, "value", "RE2"),
        ({"source": "body", "operator": "matches", "value": "("}, "value", "RE2"),
        ({"source": "body", "operator": "matches", "value": "a" * 1001}, "value", "1000"),
        ({"source": "body", "operator": "eq", "value": "a" * 5000}, "value", "4096"),
        ({"source": "status", "operator": "in", "value": "20x"}, "value", "'20x'"),
        ({"source": "status", "operator": "in", "value": "299-200"}, "value", "ends before"),
        ({"source": "status", "operator": "in", "value": ""}, "value", "200-299"),
        ({"source": "status", "operator": "in", "value": []}, "value", "200-299"),
        ({"source": "status", "operator": "in", "value": [True]}, "value", "200-299"),
        ({"source": "status", "operator": "eq", "value": "200"}, "value", "'in'"),
        ({"source": "status", "operator": "eq", "value": 42}, "value", "200-299"),
        ({"source": "nothing", "operator": "eq", "value": 1}, "source", "status"),
        ({"source": "body", "operator": "like", "value": "x"}, "operator", "eq"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_field(fields: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Assertion.model_validate(fields)
    (error,) = caught.value.errors()
    assert error["loc"] == (field,)
    assert word in error["msg"]


@pytest.mark.parametrize("operator", ["eq", "ne", "contains", "not_contains"])
def test_a_value_that_was_forgotten_is_not_null(operator: str) -> None:
    fields = {"source": "json", "path": "$.a", "operator": operator}
    with pytest.raises(ValidationError, match="to compare with null, write null"):
        Assertion.model_validate(fields)
    written = Assertion.model_validate({**fields, "value": None})
    assert Assertion.model_validate_json(written.model_dump_json()) == written


def test_every_operator_is_offered_by_some_source() -> None:
    assert frozenset().union(*OPERATORS.values()) == frozenset(Operator)


def test_a_pattern_that_takes_python_exponential_time_is_judged_at_once() -> None:
    Assertion.model_validate({"source": "body", "operator": "matches", "value": "(a+)+$"})
