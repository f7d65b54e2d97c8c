"""What a user asserts about an answer. The judging lives in ``evaluate``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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


Source = Literal["status", "header", "body", "json", "response_time_ms", "certificate_days_left"]


class Assertion(BaseModel):
    """One condition; ``path`` is a header name or a JSON path (RFC 9535), needed by those two sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source
    operator: Operator
    path: Annotated[str | None, Field(max_length=500)] = None
    value: Any = None
    severity: Literal["down", "degraded"] = "down"
