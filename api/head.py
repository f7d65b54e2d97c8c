"""HEAD wherever there is GET (RFC 9110 section 9.1): uptime probes and load balancers ask with it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.body_limit import PING


class HeadAsGet:
    """ASGI middleware: the answer to GET without its body. A ping has its own routes for HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"].startswith(PING):
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, without_body)
