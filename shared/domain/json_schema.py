"""JSON schemas (draft 2020-12), bounded so that a stranger's schema or document cannot hold up a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from shared.domain import effort
from shared.domain.comparison import bounded, compile_pattern, found_in, quoted
from shared.domain.effort import TooMuchEffortError

# They apply patterns with the library's own engine, or follow references without being counted.
_UNBOUNDED = frozenset({"patternProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef"})
_MAPS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})  # names here are the user's
_VALUES = frozenset({"const", "enum", "default", "examples"})  # what stands below them is no schema
_MEMBERS = 8
"""Members of a list or an object that most rules may go through for one step."""

_SLOW = frozenset({"additionalProperties", "propertyNames", "uniqueItems"})
"""Those that take a step for each."""

_CHARACTERS = 128
"""Characters of a message that take as long as one step."""

Rule = Callable[..., Iterator[ValidationError] | None]


class SchemaFailedError(Exception):
    """The document could not be held against the schema; the text says why."""


def _counted(name: str, rule: Rule) -> Rule:
    members = 1 if name in _SLOW else _MEMBERS

    def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        effort.step(1 + (len(instance) // members if isinstance(instance, list | dict) else 0))
        for fault in _each(rule(validator, value, instance, schema)):
            # The library writes the whole of what it looked at into each message, also of what is only tried out.
            effort.step(len(fault.message) // _CHARACTERS)
            yield fault

    return apply


def _each(faults: Iterator[ValidationError] | None) -> Iterator[ValidationError]:
    """Rules without a fault may return nothing at all."""
    return iter(()) if faults is None else faults


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    # RE2 instead of the library's own engine, which can take exponential time.
    if isinstance(instance, str) and found_in(instance, pattern) is None:
        yield ValidationError(f"{quoted(instance)} does not match {quoted(pattern)}")


def _unique_items(_: Any, unique: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    # The library compares each with each: seconds for a list that fits into a body.
    if unique and isinstance(instance, list):
        texts = {json.dumps(_canonical(item), sort_keys=True) for item in instance}
        if len(texts) < len(instance):
            yield ValidationError(f"{len(instance) - len(texts)} items are there more than once")


def _canonical(value: Any) -> Any:
    """1 and 1.0 are one number."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_canonical(item) for item in value]
        case dict():
            return {name: _canonical(item) for name, item in value.items()}
    return value


_RULES: dict[str, Rule] = {
    **Draft202012Validator.VALIDATORS,
    "pattern": _pattern,
    "uniqueItems": _unique_items,
}
_Validator: type[Validator] = extend(  # type: ignore[no-untyped-call]  # the stubs leave it out
    Draft202012Validator, {name: _counted(name, rule) for name, rule in _RULES.items()}
)


@lru_cache(maxsize=512)
def compile_schema(text: str) -> Validator:
    """Take a schema as JSON text; raises ``ValueError`` that names the fault."""
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise ValueError('a JSON schema is an object, for example {"type": "object", "required": ["id"]}')  # noqa: TRY004 - pydantic reports ValueErrors only
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "its top"
        raise ValueError(f"this is not a JSON schema (draft 2020-12): {error.message[:200]} at {where}") from None
    except RecursionError:
        raise ValueError("this JSON schema is nested too deeply") from None
    _check_parts(schema)
    # An empty registry: a reference that leads out of the schema is never fetched.
    return _Validator(schema, registry=Registry())


def _check_parts(schema: Any) -> None:
    """References stay inside, patterns are RE2, and no rule works without being counted."""
    if isinstance(schema, list):
        for part in schema:
            _check_parts(part)
    if not isinstance(schema, dict):
        return
    for name, part in schema.items():
        if name in _UNBOUNDED:
            raise ValueError(f"{name} is not supported here: its work cannot be bounded")
        if name == "$ref" and not str(part).startswith("#"):
            raise ValueError(f"$ref {str(part)[:80]!r} leads out of the schema: write one such as #/$defs/item")
        if name == "pattern":
            compile_pattern(str(part))
        if name in _MAPS and isinstance(part, dict):
            _check_parts(list(part.values()))
        elif name not in _VALUES:
            _check_parts(part)


def first_fault(schema: Any, document: Any) -> str | None:
    """Where the document is not what the schema says, or null; raises ``SchemaFailedError``. The effort counts."""
    validator = compile_schema(json.dumps(schema))
    try:
        fault = next(validator.iter_errors(document), None)
    except TooMuchEffortError as error:
        raise SchemaFailedError(str(error)) from None
    except Unresolvable as error:
        raise SchemaFailedError(f"the schema refers to {str(error)[:80]!r}, which it does not have") from None
    except RecursionError:
        raise SchemaFailedError("the document or the schema is nested too deeply") from None
    return None if fault is None else f"{bounded(fault.json_path)}: {bounded(fault.message)}"
