"""What judging one answer may cost: users write the patterns, paths and schemas, and strangers the answers."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from typing import Any

import pytest

from shared.domain import effort
from shared.domain.banner import BANNER_LIMIT, banner_matches, compile_banner
from shared.domain.checks import HttpCheck
from shared.domain.comparison import PATTERN_MEMORY, compile_pattern
from shared.domain.effort import TooMuchEffortError
from shared.domain.evaluate import evaluate
from shared.domain.observation import HttpObservation
from shared.domain.result import CheckVerdict, Timings

LONGEST = 30.0
"""Seconds of computing, several times what the effort takes; without its end each of these takes far longer."""

ALTERNATING = "".join(random.Random(1).choices("ab", k=1024 * 1024))
ROWS = [{"id": number, "name": f"service {number}", "status": "ok"} for number in range(8000)]
ZEROS = [0] * 300_000
NUMBERED = {str(number): 1 for number in range(60_000)}


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "0" + "]" * depth)


def judged(body: Any, *assertions: dict[str, Any]) -> CheckVerdict:
    spec = HttpCheck.model_validate({"url": "http://shop.example/", "assertions": assertions})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return evaluate(spec, HttpObservation(Timings(), 200, "1.1", (), data, len(data)), 0)


def along(path: str) -> dict[str, Any]:
    return {"source": "json", "path": path, "operator": "exists"}


def like(schema: dict[str, Any]) -> dict[str, Any]:
    return {"source": "json_schema", "operator": "matches", "value": schema}


def matching(pattern: str) -> dict[str, Any]:
    return {"source": "body", "operator": "matches", "value": pattern}


def any_of(**rule: Any) -> dict[str, Any]:
    return like({"anyOf": [rule] * 300})


@pytest.mark.parametrize(
    ("body", "assertion"),
    [
        pytest.param(nested(60), along("$" + "[*,*]" * 60), id="doubling"),
        pytest.param(nested(60), along("$[?count(@" + "[*,*]" * 59 + ") > 0]"), id="doubling in a filter"),
        pytest.param(ZEROS, along("$[*]"), id="all of a long list"),
        pytest.param(ZEROS, along("$..*"), id="all descendants"),
        pytest.param(ZEROS, along("$[?@ == 1]"), id="a filter that finds nothing"),
        pytest.param(ZEROS, along("$[" + ",".join(["*"] * 200) + "]"), id="many selectors"),
        pytest.param(
            [f"(.{{{number % 1000}}})" for number in range(20_000)],
            along("$[?match('x', @)]"),
            id="patterns of the document",
        ),
        pytest.param(
            [f"((.{{1000}}){{{number}}})" for number in range(20_000)],
            along("$[?match('x', @)]"),
            id="unusable patterns of the document",
        ),
        pytest.param([ALTERNATING], along("$[?search(@, '(a|b)*a(a|b){500}c')]"), id="pattern in a path"),
        pytest.param(ZEROS, any_of(type="string"), id="a long list again and again"),
        pytest.param(ALTERNATING, any_of(minLength=10**9), id="messages that hold the document"),
        pytest.param(ZEROS, any_of(uniqueItems=True, type="string"), id="unique items"),
        pytest.param(ZEROS, any_of(items=True, minItems=10**9), id="items without rules"),
        pytest.param(NUMBERED, any_of(propertyNames={"maxLength": 1}), id="names of properties"),
        pytest.param(NUMBERED, any_of(additionalProperties=False), id="additional properties"),
        pytest.param([ALTERNATING], like({"items": {"pattern": "(a|b)*a(a|b){500}c"}}), id="pattern in a schema"),
    ],
)
def test_no_document_takes_longer_than_the_effort(body: Any, assertion: dict[str, Any]) -> None:
    started = time.process_time()
    verdict = judged(body, assertion)
    assert time.process_time() - started < LONGEST
    assert verdict.error
    assert verdict.error.kind == "json_error"
    assert "too long" in verdict.error.message or "steps" in verdict.error.message


@pytest.mark.parametrize("pattern", ["(a|b)*a(a|b){500}c", "[ab]*a[ab]{300}c", ".*a.{900}z"])
def test_no_pattern_takes_longer_than_the_effort(pattern: str) -> None:
    started = time.process_time()
    verdict = judged(ALTERNATING, *[matching(pattern)] * 30)
    assert time.process_time() - started < LONGEST
    assert verdict.error
    assert verdict.error.kind == "assertion_failed"
    assert "too long" in verdict.error.message


def test_all_assertions_together_have_one_effort() -> None:
    """Each of these alone is within it."""
    assert judged(ROWS, along("$[*].id")).error is None
    verdict = judged(ROWS, *[along("$[*].id")] * 30)
    assert verdict.error
    assert verdict.error.kind == "json_error"


@pytest.mark.parametrize(
    "assertion",
    [
        along("$[*].status"),
        along("$..status"),
        along("$[?@.status == 'ok'].id"),
        along("$[?match(@.name, 'service [0-9]+')].id"),
        like({"type": "array", "items": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}}),
        matching("service [0-9]{4}.{0,30}ok"),
    ],
    ids=lambda each: each["path"] if "path" in each else each["source"],
)
def test_ordinary_conditions_have_room_on_large_documents(assertion: dict[str, Any]) -> None:
    assert judged(ROWS, assertion).error is None


def test_an_ordinary_pattern_is_held_against_a_whole_body() -> None:
    assert judged(ALTERNATING.encode() + b" status: 200", matching(r"status: \d{3}$")).error is None


def test_long_names_on_the_way_take_no_memory() -> None:
    body = json.dumps({"k" * 500_000: [0] * 90_000}).encode()
    tracemalloc.start()
    try:
        assert judged(body, along("$.*[*]")).error is None
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_patterns_that_are_kept_have_a_bound_together() -> None:
    """Each learns about the texts it is held against: that is where the time of RE2 comes from, and its memory."""
    for compile_ in (compile_pattern, compile_banner):
        assert compile_("a").options.max_mem == PATTERN_MEMORY
        assert compile_.cache_parameters()["maxsize"] * PATTERN_MEMORY <= 512 * 1024 * 1024


def test_a_banner_is_not_searched_for_ever() -> None:
    effort.begin()
    received = ALTERNATING[:BANNER_LIMIT].encode()
    with pytest.raises(TooMuchEffortError, match="long repetitions"):
        all(not banner_matches("[ab]*a[ab]{300}c", received) for _ in range(100))


@pytest.mark.parametrize("depth", [600, 900])
def test_values_that_are_nested_deeply_are_judged_or_named(depth: int) -> None:
    """Comparing takes more of the stack than reading does, and how much there is differs between interpreters."""
    value = json.loads("[" * depth + "]" * depth)
    for operator, body, expected, right in (
        ("eq", value, value, None),
        ("ne", value, value, "assertion_failed"),
        ("contains", [value], value, None),
        ("in", value, [value], None),
    ):
        asserted = {"source": "json", "path": "$", "operator": operator, "value": expected}
        error = judged(body, asserted).error
        is_too_deep = error is not None and error.message == "$ is nested too deeply to be compared"
        assert is_too_deep or (error and error.kind) == right


def test_a_text_that_is_no_unicode_is_matched_like_any_other() -> None:
    assert judged(["\ud800"], along("$[?match(@, '.')]")).error is None
