"""JSON schemas: what they say, what is refused in them, and how much work they may make."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from shared.domain import effort
from shared.domain.json_schema import SchemaFailedError, compile_schema, first_fault


@pytest.fixture(autouse=True)
def begun() -> None:
    effort.begin()


ITEM = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@pytest.mark.parametrize(
    ("schema", "document", "word"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [], "object"),
        ({"type": "array", "items": ITEM}, [{"id": 1}], None),
        ({"type": "array", "items": ITEM}, [{"id": 1}, {"id": "2"}], "$[1].id"),
        ({"required": ["a"]}, {"b": 1}, "'a'"),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 2}, "b"),
        ({"pattern": "^a+$"}, "aaa", None),
        ({"pattern": "^a+$"}, "b", "match"),
        ({"pattern": "^(a+)+$"}, "a" * 5000 + "b", "match"),
        ({"uniqueItems": True}, [1, 2, "1", True, None, [1], {"a": 1}], None),
        ({"uniqueItems": True}, [1, 1.0], "more than once"),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], "more than once"),
        ({"uniqueItems": True}, [{"a": n} for n in range(20_000)], None),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}, 2, "1"),
        ({"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}}, {"pattern": 1}, "string"),
        ({"enum": [{"pattern": "("}]}, {"pattern": "("}, None),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, None, "None"),
    ],
)
def test_what_a_schema_says(schema: dict[str, Any], document: Any, word: str | None) -> None:
    fault = first_fault(schema, document)
    assert (fault is None) is (word is None), fault
    assert word is None or word in str(fault)
    assert len(str(fault)) < 500


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ([], "object"),
        ({"type": "objekt"}, "objekt"),
        ({"$ref": "https://evil.example/schema"}, "leads out"),
        ({"items": {"$ref": "other.json"}}, "leads out"),
        ({"pattern": "(?=x)"}, "RE2"),
        ({"patternProperties": {"(a+)+$": {}}}, "not supported"),
        ({"allOf": [{"unevaluatedProperties": False}]}, "not supported"),
    ],
)
def test_a_schema_that_cannot_be_applied_is_refused(schema: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        compile_schema(json.dumps(schema))


def doubling(depth: int) -> dict[str, Any]:
    steps: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**steps, f"d{depth}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (doubling(40), 1),
        ({"$ref": "#"}, 1),
        ({"type": "array", "items": ITEM}, [{"id": n} for n in range(100_000)]),
        ({"$ref": "#/$defs/nowhere"}, 1),
    ],
)
def test_a_schema_makes_bounded_work(schema: dict[str, Any], document: Any) -> None:
    started = time.process_time()
    with pytest.raises(SchemaFailedError):
        first_fault(schema, document)
    assert time.process_time() - started < 30, "some of them would never end"
    effort.begin()
    assert first_fault({"type": "object"}, {}) is None
