"""What the channels that speak HTTP share: one POST through the guarded door, and what its answer means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator, Field

from shared.channels.errors import PermanentError, TemporaryError
from shared.channels.record import Receipt, Tools
from shared.domain.comparison import well_formed
from shared.domain.notification import shortened
from shared.domain.retry_after import retry_after
from shared.domain.url import parse_url
from shared.http.errors import BlockedError, HttpError
from shared.http.exchange import Manner
from shared.http.transport import guarded_client

EXCERPT_LIMIT = 300

_MANNER = Manner(follows=False, wants_body=False, limit=65_536)
_TRY_AGAIN = frozenset({408, 425, 429})
_GATEWAY = frozenset({502, 504})


def _dialable(url: str) -> str:
    parse_url(url)
    return url


HttpUrl = Annotated[str, Field(max_length=2048), AfterValidator(_dialable)]


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """A POST. ``plain`` is tried once when the service cannot parse this one."""

    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    plain: HttpMessage | None = None


def json_body(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def origin(url: str) -> str:
    """Scheme and host: all that may be shown of an address whose path is a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


async def post(_: Any, message: HttpMessage, tools: Tools) -> Receipt:
    """Send and judge the answer; raises ``TemporaryError`` and ``PermanentError``."""
    response = await _post(message, tools)
    if response.status_code == 400 and message.plain is not None:
        response = await _post(message.plain, tools)
    receipt = Receipt(response.status_code, _excerpt(response))
    if response.is_success:
        return receipt
    raise _refusal(response, receipt, tools.clock.now_ms())


async def _post(message: HttpMessage, tools: Tools) -> httpx.Response:
    try:
        async with guarded_client(tools.door, _MANNER, tools.timeout_seconds) as client:
            return await client.post(message.url, content=message.body, headers=dict(message.headers))
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        if isinstance(error.__cause__, BlockedError):
            raise PermanentError(str(error)) from None
        raise TemporaryError(_told(error)) from None
    except httpx.LocalProtocolError as error:
        raise PermanentError(_told(error)) from None
    except httpx.TransportError as error:
        # The request was on its way: whether it was taken is not known.
        raise TemporaryError(_told(error), is_uncertain=True) from None


def _told(error: httpx.TransportError) -> str:
    cause = error.__cause__
    return cause.error.message if isinstance(cause, HttpError) else str(error) or type(error).__name__


def _refusal(response: httpx.Response, receipt: Receipt, now_ms: int) -> TemporaryError | PermanentError:
    status = response.status_code
    told = f"the service answered {status}"
    if status in _TRY_AGAIN or status >= 500:
        wait = retry_after(response.headers, now_ms)
        return TemporaryError(told, receipt, retry_after=wait, is_uncertain=status in _GATEWAY)
    if 300 <= status < 400:
        told = f"the service answered {status}, a redirect: write the final address into the channel"
    return PermanentError(told, receipt)


def _excerpt(response: httpx.Response) -> str | None:
    text = response.content[:4096].decode("utf-8", "replace").strip()
    return shortened(well_formed(text), EXCERPT_LIMIT) or None
