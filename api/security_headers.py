"""Headers that keep a browser from doing more with our answers than we meant (CSP level 3, Fetch)."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DATA: Final = "default-src 'none'; frame-ancestors 'none'"
# The page of the documentation styles its elements itself and draws its icons from data.
_PAGE: Final = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class SecurityHeaders:
    """ASGI middleware. Answers are data that nobody may run, frame or sniff; a page may run its own scripts only.

    A page is one of our own making without anything a user wrote, so what stands in it is what may run.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page: Message | None = None

        async def secured(message: Message) -> None:
            nonlocal page
            if message["type"] == "http.response.start":
                if _is_page(message):  # its policy depends on the body that follows
                    page = message
                    return
                _add(message, _DATA)
            elif page is not None:
                _add(page, _policy(message.get("body", b"")))
                await send(page)
                page = None
            await send(message)

        await self._app(scope, receive, secured)


def _is_page(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("text/html")


def _policy(page: bytes) -> str:
    hashes = (b64encode(sha256(script).digest()).decode() for script in _INLINE.findall(page))
    return _PAGE.format(scripts=" ".join(f"'sha256-{digest}'" for digest in hashes))


def _add(start: Message, policy: str) -> None:
    headers = MutableHeaders(scope=start)
    headers["Content-Security-Policy"] = policy
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
