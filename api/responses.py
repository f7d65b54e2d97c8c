"""Answers as JSON, without a second validation of what we have built ourselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import Response

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
JSON = "application/json"
Row = TypeVar("Row")


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    return Response(encode(value), status, dict(headers or {}), media_type)


def page(rows: Sequence[Row], limit: int, cursor: Callable[[Row], str], show: Callable[[Row], Any]) -> Response:
    """One page of a list: at most ``limit`` of the rows; one row more says that there is a further page."""
    shown = rows[:limit]
    next_cursor = cursor(shown[-1]) if len(rows) > limit else None
    return json_response({"items": [show(row) for row in shown], "next_cursor": next_cursor})
