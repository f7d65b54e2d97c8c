"""The table of verdicts: what was seen, what was asserted, what it means."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.checks import HttpCheck, SslCheck
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evaluate import evaluate
from shared.domain.observation import HttpObservation, TlsObservation
from shared.domain.result import CheckVerdict, ResultStatus, Timings

NOW = 1_800_000_000_000
SEEN = Timings(dns=1, connect=2, first_byte=100, transfer=7, total=110)


def http(
    *assertions: dict[str, Any], body: bytes | str = b"", status: int = 200, headers: dict[str, str] | None = None
) -> CheckVerdict:
    """The verdict on an answer."""
    content = body.encode() if isinstance(body, str) else body
    spec = HttpCheck.model_validate({"url": "http://shop.example/", "assertions": list(assertions)})
    fields = tuple((headers or {}).items())
    seen = HttpObservation(SEEN, status_code=status, version="1.1", headers=fields, body=content)
    return evaluate(spec, seen, NOW)


def that(source: str, operator: str, value: Any = None, path: str | None = None, **more: Any) -> dict[str, Any]:
    return {"source": source, "operator": operator, "value": value, "path": path, **more}


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


@pytest.mark.parametrize(
    ("status", "operator", "value", "passes"),
    [
        (200, "in", "200-299", True),
        (299, "in", "200-299", True),
        (300, "in", "200-299", False),
        (199, "in", "200-299", False),
        (204, "in", "200,204,301-302", True),
        (302, "in", "200,204,301-302", True),
        (303, "in", "200,204,301-302", False),
        (404, "in", [200, 404], True),
        (405, "in", [200, "400-404"], False),
        (404, "in", 404, True),
        (500, "not_in", "500-599", False),
        (404, "not_in", "500-599", True),
        (404, "eq", 404, True),
        (200, "eq", 404, False),
        (200, "ne", 500, True),
        (499, "lt", 500, True),
        (500, "lt", 500, False),
        (500, "lte", 500, True),
        (200, "gte", 200, True),
        (200, "gt", 200, False),
    ],
)
def test_status(status: int, operator: str, value: Any, passes: bool) -> None:
    verdict = http(that("status", operator, value), status=status)
    assert kind(verdict) == (None if passes else "status_code")
    assert verdict.assertions[0].actual == status


@pytest.mark.parametrize(("status", "passes"), [(200, True), (204, True), (299, True), (301, False), (404, False)])
def test_without_an_assertion_on_the_status_it_has_to_be_a_success(status: int, passes: bool) -> None:
    verdict = http(status=status)
    assert kind(verdict) == (None if passes else "status_code")
    assert verdict.assertions[0].expected == "200-299"


DOCUMENT = {
    "n": None,
    "b": False,
    "yes": True,
    "list": [],
    "items": [1, "1", {"id": 7}],
    "s": "0",
    "zero": 0,
    "one": 1.0,
    "big": 12345678901234567890123,
    "f": 0.85,
    "o": {"k": "v"},
    "empty": "",
    "queues": [{"name": "a", "depth": 3}, {"name": "b", "depth": 90}],
    "text": "ready steady",
}
FAILED = "assertion_failed"
MISSING = "json_path_missing"


@pytest.mark.parametrize(
    ("path", "operator", "value", "error"),
    [
        ("$.missing", "lt", 120, MISSING),
        ("$.missing", "eq", None, MISSING),
        ("$.missing", "ne", 1, MISSING),
        ("$.missing", "not_contains", "x", MISSING),
        ("$.missing", "empty", True, MISSING),
        ("$.missing", "exists", True, MISSING),
        ("$.missing", "exists", False, None),
        ("$.n", "exists", None, None),
        ("$.n", "exists", False, FAILED),
        ("$.n", "eq", None, None),
        ("$.n", "eq", False, FAILED),
        ("$.n", "eq", 0, FAILED),
        ("$.n", "lt", 5, FAILED),
        ("$.n", "empty", True, FAILED),
        ("$.b", "eq", False, None),
        ("$.b", "eq", 0, FAILED),
        ("$.b", "eq", None, FAILED),
        ("$.b", "lt", 5, FAILED),
        ("$.yes", "eq", 1, FAILED),
        ("$.yes", "eq", True, None),
        ("$.list", "eq", [], None),
        ("$.list", "empty", None, None),
        ("$.list", "empty", False, FAILED),
        ("$.items", "empty", False, None),
        ("$.items", "contains", 1, None),
        ("$.items", "contains", True, FAILED),
        ("$.items", "contains", {"id": 7}, None),
        ("$.items", "not_contains", 2, None),
        ("$.items", "eq", [1, "1", {"id": 7}], None),
        ("$.items", "eq", [1, "1", {"id": True}], FAILED),
        ("$.s", "eq", 0, FAILED),
        ("$.s", "eq", "0", None),
        ("$.s", "lt", 5, FAILED),
        ("$.zero", "eq", 0, None),
        ("$.zero", "eq", "0", FAILED),
        ("$.zero", "eq", None, FAILED),
        ("$.zero", "matches", "0", FAILED),
        ("$.one", "eq", 1, None),
        ("$.big", "eq", 12345678901234567890123, None),
        ("$.big", "eq", 12345678901234567890124, FAILED),
        ("$.big", "gt", 12345678901234567890122, None),
        ("$.f", "lt", 0.9, None),
        ("$.f", "gte", 0.86, FAILED),
        ("$.o", "contains", "k", None),
        ("$.o", "contains", "v", FAILED),
        ("$.o", "contains", 1, FAILED),
        ("$.o", "eq", {"k": "v"}, None),
        ("$.empty", "empty", True, None),
        ("$.empty", "eq", "", None),
        ("$.empty", "eq", None, FAILED),
        ("$.queues[*].depth", "lt", 100, None),
        ("$.queues[*].depth", "lt", 50, FAILED),
        ("$.queues[?@.name=='b'].depth", "eq", 90, None),
        ("$.queues[?search(@.name,'a')].depth", "eq", 3, None),
        ("$.queues[?match(@.name,'(x')].depth", "eq", 3, MISSING),
        ("$..depth", "gte", 3, None),
        ("$.s", "in", ["1", "0"], None),
        ("$.s", "in", [0], FAILED),
        ("$.s", "not_in", [0], None),
        ("$.text", "contains", "steady", None),
        ("$.text", "not_contains", "steady", FAILED),
        ("$.text", "matches", "^ready", None),
        ("$.text", "matches", "^steady", FAILED),
        ("$['text']", "ne", "x", None),
    ],
)
def test_json(path: str, operator: str, value: Any, error: str | None) -> None:
    assert kind(http(that("json", operator, value, path), body=json.dumps(DOCUMENT))) == error


@pytest.mark.parametrize(
    "body",
    ["<html>", "", "{", "NaN", '{"a": Infinity}', "[" * 100_000, "9" * 5000],
    ids=["html", "empty", "cut", "nan", "infinity", "deep", "digits"],
)
def test_what_is_not_json_is_a_json_error(body: str) -> None:
    assert kind(http(that("json", "exists", None, "$.a"), body=body)) == "json_error"


@pytest.mark.parametrize(
    ("operator", "value", "error"),
    [
        ("contains", "ready", None),
        ("contains", "Ready", "keyword_missing"),
        ("not_contains", "error", None),
        ("not_contains", "ready", "keyword_present"),
        ("matches", r"re\w+y", None),
        ("matches", r"^steady", FAILED),
        ("eq", "it is ready", None),
        ("eq", "ready", FAILED),
        ("ne", "x", None),
        ("empty", None, FAILED),
        ("empty", False, None),
    ],
)
def test_body(operator: str, value: Any, error: str | None) -> None:
    assert kind(http(that("body", operator, value), body="it is ready")) == error


@pytest.mark.parametrize(
    ("path", "operator", "value", "error"),
    [
        ("Content-Type", "matches", "^application/json", None),
        ("content-type", "contains", "utf-8", None),
        ("content-type", "eq", "application/json", FAILED),
        ("content-type", "in", ["application/json; charset=utf-8"], None),
        ("x-missing", "exists", None, FAILED),
        ("x-missing", "exists", False, None),
        ("x-missing", "eq", "", FAILED),
        ("x-empty", "empty", True, None),
        ("x-empty", "exists", True, None),
    ],
)
def test_header(path: str, operator: str, value: Any, error: str | None) -> None:
    headers = {"content-type": "application/json; charset=utf-8", "x-empty": ""}
    assert kind(http(that("header", operator, value, path), headers=headers)) == error


@pytest.mark.parametrize(("limit", "error"), [(800, None), (110, FAILED), (110.1, None)])
def test_response_time(limit: float, error: str | None) -> None:
    assert kind(http(that("response_time_ms", "lt", limit))) == error


def test_a_failed_assertion_of_severity_degraded_degrades() -> None:
    verdict = http(that("response_time_ms", "lt", 100, severity="degraded"))
    assert verdict.status is ResultStatus.DEGRADED
    assert verdict.error
    assert verdict.error.message == "the response time in milliseconds is 110, expected less than 100"


def test_down_outweighs_degraded() -> None:
    slow = that("response_time_ms", "lt", 100, severity="degraded")
    verdict = http(slow, that("body", "contains", "x"))
    assert verdict.status is ResultStatus.DOWN
    assert kind(verdict) == "keyword_missing"


def test_a_wrong_status_is_named_before_what_follows_from_it() -> None:
    verdict = http(that("body", "contains", "x"), that("status", "eq", 200), status=503)
    assert kind(verdict) == "status_code"
    assert verdict.error
    assert verdict.error.message == "status is 503, expected 200"
    assert [outcome.passed for outcome in verdict.assertions] == [False, False]


def test_an_answer_that_never_came_leaves_every_assertion_unanswered() -> None:
    spec = HttpCheck.model_validate(
        {
            "url": "http://shop.example/",
            "assertions": [that("status", "in", "200-299"), that("certificate_days_left", "gt", 7)],
        }
    )
    refused = CheckError(ErrorKind.CONNECT_REFUSED, "refused")
    verdict = evaluate(spec, HttpObservation(SEEN, error=refused), NOW)
    assert verdict.status is ResultStatus.DOWN
    assert verdict.error == refused
    assert [(outcome.actual, outcome.passed) for outcome in verdict.assertions] == [(None, False), (None, False)]
    assert verdict.timings_ms == SEEN


def test_a_certificate_that_was_not_seen_fails_what_is_asserted_about_it() -> None:
    assert kind(http(that("certificate_days_left", "gt", 7))) == FAILED


def test_an_observation_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError):
        evaluate(SslCheck(host="shop.example"), HttpObservation(SEEN), NOW)
    with pytest.raises(TypeError):
        evaluate(HttpCheck(url="http://shop.example/"), TlsObservation(SEEN), NOW)


@pytest.mark.parametrize("value", ["x" * 9999, "\ud800", "nul\x00", 2**80, ["y" * 500], {"k": "\udfff"}, -(2**70)])
def test_what_a_verdict_shows_is_bounded_and_can_be_stored(value: Any) -> None:
    verdict = http(that("json", "eq", 1, "$.v"), body=json.dumps({"v": value}))
    encoded = msgspec.json.encode(verdict)
    assert "\x00" not in f"{verdict.error}{verdict.assertions[1].actual}"
    assert len(encoded) < 3500
    assert msgspec.json.decode(encoded, type=CheckVerdict) == verdict


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(value=JSON, expected=JSON)
def test_any_value_against_any_other_gives_a_verdict_that_travels(value: Any, expected: Any) -> None:
    if len(json.dumps(expected)) > 4000:
        return
    verdict = http(that("json", "eq", expected, "$.v"), body=json.dumps({"v": value}))
    same = json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)
    if same:
        assert verdict.status is ResultStatus.UP
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=CheckVerdict).status is verdict.status
