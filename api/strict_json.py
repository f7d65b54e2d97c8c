"""JSON as we accept it: valid UTF-8, no NaN, no name twice, bounded, and nothing that storage cannot hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.errors import ApiError, invalid

MAX_DEPTH = 32
_INTEGERS = range(-(2**63), 2**63)


class StrictRequest(Request):
    """A request whose body is decoded by ``decode_json``."""

    async def json(self) -> Any:
        return decode_json(await self.body())


class StrictRoute(APIRoute):
    """The route class of every router that takes JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            _require_json(request)
            return await handler(StrictRequest(request.scope, request.receive))

        return handle


def decode_json(body: bytes) -> Any:
    """The value, or a 422 that says what is wrong and where."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiError(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_json", f"the body is not valid JSON: {error}"
        ) from error
    except RecursionError as error:
        raise invalid("", f"the body is nested deeper than {MAX_DEPTH} levels") from error
    _check(value, ())
    json.loads(body, object_pairs_hook=_refuse_duplicates)
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """A decoder would take the last one and drop the others without a word."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise invalid(name, "this field is written twice in one object")
        seen.add(name)


def _check(value: Any, path: tuple[str, ...]) -> None:
    if len(path) > MAX_DEPTH:
        raise invalid(".".join(path[:3]), f"the body is nested deeper than {MAX_DEPTH} levels")
    match value:
        case str():
            if "\0" in value:
                raise invalid(".".join(path), "the character NUL cannot be stored")
        case int():
            if value not in _INTEGERS:
                raise invalid(".".join(path), "a whole number must fit into 64 bits")
        case list():
            for index, item in enumerate(value):
                _check(item, (*path, str(index)))
        case dict():
            for name, item in value.items():
                _check(name, path)
                _check(item, (*path, name))


def _require_json(request: Request) -> None:
    length = request.headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in request.headers:
        return
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "send the body with Content-Type: application/json",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "send the body without Content-Encoding"
        )
