"""The rows of the table of settings, from the classes that the processes read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic.fields import FieldInfo

from cli.process_settings import PROCESSES
from shared.settings import PREFIX

HEAD: Final = ("Variable", "Type", "Default", "Read by", "Meaning")
_KINDS: Final = {"string": "text", "number": "decimal number"}


def rows() -> Iterator[tuple[str, ...]]:
    """Each setting once, with every process that reads it."""
    fields: dict[str, tuple[FieldInfo, dict[str, Any], list[str]]] = {}
    for process, settings in PROCESSES.items():
        properties = settings.model_json_schema()["properties"]
        for name, field in settings.model_fields.items():
            fields.setdefault(name, (field, properties[name], []))[2].append(process)
    for name in sorted(fields, key=lambda name: (not fields[name][0].is_required(), name)):
        field, part, processes = fields[name]
        variable = f"`{PREFIX}{name.upper()}`"
        yield variable, _kind(part), _default(field), ", ".join(processes), field.description or ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    shown = ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return f"`{shown}`" if shown else "none"


def _kind(part: dict[str, Any]) -> str:
    if several := part.get("anyOf"):
        return _kind(next(each for each in several if each.get("type") != "null"))
    if choices := part.get("enum"):
        return ", ".join(f"`{choice}`" for choice in choices)
    if part.get("type") == "array":
        return "list of secrets" if part["items"].get("writeOnly") else "list"
    kind = "secret" if part.get("writeOnly") else _KINDS.get(part["type"], part["type"])
    return f"{kind} {part['minimum']}–{part['maximum']}" if "minimum" in part and "maximum" in part else kind
