"""Bodies over one mebibyte are refused: by their announced length, or while they arrive."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError, problem_response

MAX_BODY_BYTES: Final = 1024 * 1024
PING: Final = "/ping/"
_STATUS = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_CODE = "body_too_large"
_DETAIL = f"a request body has at most {MAX_BODY_BYTES} bytes"


class BodyLimit:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PING):
            # A ping counts however long its body is: only the beginning is read.
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0") if scope["type"] == "http" else "0"
        if announced.isdecimal() and int(announced) > MAX_BODY_BYTES:
            await problem_response(_STATUS, _CODE, _DETAIL)(scope, receive, send)
            return
        await self._app(scope, _Counter(receive), send)


class _Counter:
    """Counts what arrives, because a chunked body announces nothing."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > MAX_BODY_BYTES:
            raise ApiError(_STATUS, _CODE, _DETAIL)
        return message
