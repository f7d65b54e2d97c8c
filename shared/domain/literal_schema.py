"""Numbers, truth values and ids as they are written in JSON, and nothing that merely looks like them.

Left to itself pydantic takes ``"no"`` for false, ``true`` for 1, ``"5"`` for 5 and ``urn:uuid:…`` for an id: a
mistake in a client would be accepted as something that nobody wrote, against the published schema.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema

from shared.domain.ids import require_id

# What a core schema holds besides other schemas.
_NO_SCHEMAS = frozenset({"metadata", "serialization", "default", "expected"})
_READ = "tocsin_read"  # a schema that is reached a second time is left as it is


def take_literally(schema: Any) -> None:
    """Change pydantic's core schema of a model, in place, so that its fields guess nothing."""
    if isinstance(schema, list | tuple):
        for part in schema:
            take_literally(part)
    elif isinstance(schema, dict):
        # A map from the names of fields to their schemas has none of these keys, only fields called so.
        kind = schema["type"] if isinstance(schema.get("type"), str) else None
        for key in schema.keys() - (_NO_SCHEMAS if kind else frozenset()):
            take_literally(schema[key])
        if kind in {"bool", "float", "int"} and not schema.get("strict"):
            _make_strict(schema)
        elif kind == "uuid" and not (schema.get("metadata") or {}).get(_READ):
            _read_first(schema)


def _make_strict(schema: dict[str, Any]) -> None:
    schema["strict"] = True
    if schema["type"] == "int":
        number: Any = {**schema}
        schema.clear()
        schema.update(core_schema.no_info_before_validator_function(_whole, number))


def _read_first(schema: dict[str, Any]) -> None:
    """Have ids read by us; pydantic's own ``strict`` would refuse every text that does not come as JSON."""
    inner: Any = {**schema, "metadata": {**schema.get("metadata", {}), _READ: True}}
    schema.clear()
    schema.update(core_schema.no_info_before_validator_function(require_id, inner))


def _whole(value: Any) -> Any:
    """In JSON 5.0 is the whole number 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
