"""Answers as JSON, without a second validation of what we have built ourselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import Response

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
JSON = "application/json"


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = JSON
) -> Response:
    return Response(encode(value), status, dict(headers or {}), media_type)


def page(items: Sequence[Any], next_cursor: str | None) -> Response:
    """One page of a list."""
    return json_response({"items": items, "next_cursor": next_cursor})
