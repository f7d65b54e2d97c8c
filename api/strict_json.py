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
_LEAST, _MOST = -(2**63), 2**63 - 1
_NUL = "the character NUL cannot be stored"
_TOO_DEEP = f"the body is nested deeper than {MAX_DEPTH} levels"
_SHOWN_OF_DEEP = 3


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
        raise invalid("", _TOO_DEEP) from error
    _check(value)
    json.loads(body, object_pairs_hook=_refuse_duplicates)
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """A decoder would take the last one and drop the others without a word."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise invalid(name, "this field is written twice in one object")
        seen.add(name)


class _FaultError(Exception):
    """Something that storage cannot hold; ``path`` is put together on the way back from it, the innermost first."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = list(path)


def _check(value: Any) -> None:
    try:
        _look_into({"": value}, 0)
    except _FaultError as fault:
        path = [str(place) for place in fault.path[::-1]][1:]
        shown = path[:_SHOWN_OF_DEEP] if str(fault) == _TOO_DEEP else path
        raise invalid(".".join(shown), str(fault)) from fault


def _look_into(container: dict[str, Any] | list[Any], depth: int) -> None:
    """One body has a hundred thousand values: what is right costs no call, and paths are made for what is wrong."""
    for place, item in container.items() if isinstance(container, dict) else enumerate(container):
        kind = type(item)
        if type(place) is str and "\0" in place:
            raise _FaultError(_NUL)
        if kind is str:
            if "\0" in item:
                raise _FaultError(_NUL, place)
        elif kind is int:
            if not _LEAST <= item <= _MOST:
                raise _FaultError("a whole number must fit into 64 bits", place)
        elif kind is dict or kind is list:
            _descend(item, place, depth + 1)


def _descend(item: dict[str, Any] | list[Any], place: str | int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _FaultError(_TOO_DEEP, place)
    try:
        _look_into(item, depth)
    except _FaultError as fault:
        fault.path.append(place)
        raise


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
