"""What a user asserts about an answer, refused at once when it could never be judged.

The judging lives in ``evaluate``.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from shared.domain.comparison import compile_pattern, is_number
from shared.domain.headers import check_header_name
from shared.domain.json_schema import compile_schema
from shared.domain.jsonpath import compile_path
from shared.domain.status_ranges import parse_status_ranges

MAX_VALUE_LENGTH = 4096
MAX_SCHEMA_LENGTH = 16384


class Operator(StrEnum):
    EQUALS = "eq"
    NOT_EQUALS = "ne"
    LESS = "lt"
    LESS_OR_EQUAL = "lte"
    GREATER = "gt"
    GREATER_OR_EQUAL = "gte"
    IN = "in"
    NOT_IN = "not_in"
    CONTAINS = "contains"
    NOT_CONTAINS = "not_contains"
    MATCHES = "matches"
    EXISTS = "exists"
    EMPTY = "empty"


Source = Literal[
    "status",
    "header",
    "body",
    "json",
    "json_schema",
    "body_bytes",
    "response_time_ms",
    "timing",
    "certificate_days_left",
    "final_url",
    "redirects",
    "remote_address",
    "http_version",
]
BODY_SOURCES = frozenset({"body", "json", "json_schema", "body_bytes"})
"""What needs the body of the answer."""

PHASES = ("dns", "connect", "tls", "first_byte", "transfer", "total")

NUMERIC = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL})
_EQUALITY = frozenset({Operator.EQUALS, Operator.NOT_EQUALS})
_MEMBERSHIP = frozenset({Operator.IN, Operator.NOT_IN})
_SUBSTRING = frozenset({Operator.CONTAINS, Operator.NOT_CONTAINS})
_TEXT = _EQUALITY | _SUBSTRING | {Operator.MATCHES, Operator.EMPTY}
_WORD = _EQUALITY | _MEMBERSHIP | _SUBSTRING | {Operator.MATCHES}
_YES_OR_NO = frozenset({Operator.EXISTS, Operator.EMPTY})

OPERATORS: dict[str, frozenset[Operator]] = {
    "status": NUMERIC | _EQUALITY | _MEMBERSHIP,
    "header": _TEXT | _MEMBERSHIP | {Operator.EXISTS},
    "body": _TEXT,
    "json": frozenset(Operator),
    "json_schema": frozenset({Operator.MATCHES}),
    "body_bytes": NUMERIC | _EQUALITY,
    "response_time_ms": NUMERIC,
    "timing": NUMERIC,
    "certificate_days_left": NUMERIC,
    "final_url": _WORD,
    "redirects": NUMERIC | _EQUALITY | _MEMBERSHIP,
    "remote_address": _WORD,
    "http_version": _EQUALITY | _MEMBERSHIP,
}
_PATHS = {
    "header": "the name of the header",
    "json": "a JSON path such as $.status",
    "timing": f"one of {', '.join(PHASES)}",
}
_NUMBER_SOURCES = frozenset({"body_bytes", "redirects"})
_TEXT_SOURCES = frozenset({"header", "body", "final_url", "remote_address", "http_version"})


class Assertion(BaseModel):
    """One condition; ``path`` is a header name, a JSON path (RFC 9535) or the phase of a ``timing``.

    A JSON path that leads to several values asserts something about each of them. ``exists`` and ``empty`` take
    true (also when no value is given) or false.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # The order matters: each field is checked against those before it.
    source: Annotated[Source, Field(description="What is looked at.")]
    operator: Annotated[Operator, Field(description="How it is compared.")]
    path: Annotated[
        str | None,
        Field(max_length=500, validate_default=True, description="Where in the source, if it has parts."),
    ] = None
    value: Annotated[Any, Field(validate_default=True, description="What is expected.")] = None
    severity: Annotated[Literal["down", "degraded"], Field(description="What it means when it fails.")] = "down"

    @field_validator("operator")
    @classmethod
    def _operator_fits_source(cls, operator: Operator, info: ValidationInfo) -> Operator:
        source = info.data.get("source")
        if source and operator not in OPERATORS[source]:
            known = ", ".join(each.value for each in Operator if each in OPERATORS[source])
            raise ValueError(f"{operator.value!r} says nothing about {source}: use one of {known}")
        return operator

    @field_validator("path")
    @classmethod
    def _path_fits_source(cls, path: str | None, info: ValidationInfo) -> str | None:
        source = info.data.get("source")
        if not source:
            return path
        if source not in _PATHS:
            if path is not None:
                raise ValueError(f"{source} has no path: leave it out")
        elif not path or (source == "timing" and path not in PHASES):
            raise ValueError(f"{source} needs a path: {_PATHS[source]}")
        elif source == "header":
            check_header_name(path)
        elif source == "json":
            compile_path(path)
        return path

    @field_validator("value")
    @classmethod
    def _value_fits_operator(cls, value: Any, info: ValidationInfo) -> Any:
        source, operator = info.data.get("source"), info.data.get("operator")
        if not source or not operator:
            return value
        _check_length(source, value)
        _check_value(source, operator, value)
        return value

    @model_validator(mode="after")
    def _null_is_written(self) -> Self:
        if "value" not in self.model_fields_set and self.operator not in _YES_OR_NO | {Operator.MATCHES}:
            raise ValueError("value: give what to compare with; to compare with null, write null")
        return self


def _check_length(source: str, value: Any) -> None:
    limit = MAX_SCHEMA_LENGTH if source == "json_schema" else MAX_VALUE_LENGTH
    try:
        length = len(json.dumps(value, default=str, allow_nan=False))
    except ValueError:
        raise ValueError("numbers must be finite") from None
    if length > limit:
        raise ValueError(f"the value is longer than {limit} characters as JSON")


def _check_value(source: str, operator: Operator, value: Any) -> None:
    if source == "json_schema":
        compile_schema(json.dumps(value, default=str))
    elif operator in NUMERIC or (operator in _EQUALITY and source in _NUMBER_SOURCES):
        _check_number(operator, value)
    elif operator in _YES_OR_NO:
        _check_yes_or_no(operator, value)
    elif operator is Operator.MATCHES:
        compile_pattern(_text(operator, value))
    elif source == "status":
        _check_status(operator, value)
    elif operator in _MEMBERSHIP:
        _check_members(source, operator, value)
    elif source in _TEXT_SOURCES:
        _check_text(operator, value)
    elif operator in _SUBSTRING and value == "":
        raise ValueError("every text contains an empty one: give the text to look for")


def _check_number(operator: Operator, value: Any) -> None:
    if not is_number(value):
        raise ValueError(f"{operator.value!r} compares numbers: give a number, without quotes")


def _check_yes_or_no(operator: Operator, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{operator.value!r} takes true or false")


def _text(operator: Operator, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{operator.value!r} needs text here")  # noqa: TRY004 - pydantic reports ValueErrors only
    return value


def _check_text(operator: Operator, value: Any) -> None:
    if _text(operator, value) == "" and operator in _SUBSTRING:
        raise ValueError("every text contains an empty one: give the text to look for")


def _check_status(operator: Operator, value: Any) -> None:
    if operator in _EQUALITY:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("a status code is a number: for ranges use the operator 'in'")
        parse_status_ranges(str(value))
    else:
        parse_status_ranges(status_text(value))


def status_text(value: Any) -> str:
    """The one text form of ``"200-299"``, ``[200, 204]`` and ``204``; raises ``ValueError`` for anything else."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, int | str) and not isinstance(part, bool) for part in parts):
        raise ValueError('write status codes like "200-299", "200,204,301-302" or [200, 204]')
    return ",".join(str(part) for part in parts)


def _check_members(source: str, operator: Operator, value: Any) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{operator.value!r} needs a list of at least one value")
    if source in _TEXT_SOURCES and not all(isinstance(member, str) for member in value):
        raise ValueError(f"{source} is text: quote each value of the list")
    if source in _NUMBER_SOURCES and not all(is_number(member) for member in value):
        raise ValueError(f"{source} is a number: write each value of the list without quotes")
