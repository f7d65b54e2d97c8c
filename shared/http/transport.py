"""httpx over the guarded door, for everything that speaks HTTP and is no check: webhooks, access tokens."""

from __future__ import annotations

import asyncio
import logging

import httpx

from shared.domain.errors import ErrorKind
from shared.domain.url import parse_url
from shared.http.door import Door
from shared.http.errors import HttpError, OverloadedError, TargetError
from shared.http.exchange import Exchange, Manner
from shared.http.request import USER_AGENT, Request
from shared.http.stopwatch import Phase, Stopwatch

# httpx writes the complete address of every request to its log, and those of webhooks are secrets.
logging.getLogger("httpx").setLevel(logging.WARNING)

_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_CONNECTING = frozenset({Phase.DNS, Phase.CONNECT, Phase.TLS})
_DECODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_ERRORS: dict[ErrorKind, type[httpx.TransportError]] = {
    ErrorKind.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    ErrorKind.CONNECTION_RESET: httpx.ReadError,
    ErrorKind.BODY_TOO_LARGE: httpx.ReadError,
    ErrorKind.EMPTY_REPLY: httpx.RemoteProtocolError,
    ErrorKind.INCOMPLETE_BODY: httpx.RemoteProtocolError,
    ErrorKind.PROTOCOL_ERROR: httpx.RemoteProtocolError,
    ErrorKind.DECODE_ERROR: httpx.RemoteProtocolError,
    ErrorKind.UNSUPPORTED_ENCODING: httpx.RemoteProtocolError,
    ErrorKind.CONFIG_ERROR: httpx.LocalProtocolError,
    ErrorKind.AUTH_FAILED: httpx.ProxyError,
}
"""What httpx calls our failures; all that prevent a connection are ``ConnectError``."""


class GuardedTransport(httpx.AsyncBaseTransport):
    """One fresh connection per request through the door, one deadline over all of it, answers of bounded size.

    Errors are those of httpx, whose cause is the ``HttpError`` that knows the kind, or ``OverloadedError``.
    """

    def __init__(self, door: Door, manner: Manner | None = None, timeout_seconds: float | None = None) -> None:
        """Without a timeout the caller sets the deadline. Redirects are handed over, never followed."""
        self._door = door
        self._manner = manner or Manner(follows=False)
        self._timeout = timeout_seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        stopwatch = Stopwatch(self._door.monotonic)
        try:
            exchange = Exchange(await _translated(request), self._manner, self._door, stopwatch)
            async with asyncio.timeout(self._timeout):
                answer = await exchange.run()
        except HttpError as error:
            raise _foreign(error, request) from error
        except OverloadedError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        except TimeoutError:
            kind = httpx.ConnectTimeout if stopwatch.phase in _CONNECTING else httpx.ReadTimeout
            raise kind(f"timed out after {self._timeout:g} s", request=request) from None
        headers = [field for field in answer.headers if field[0] not in _DECODED]
        # Where the manner wants no body, an answer that is no success still has its beginning.
        content = answer.body or answer.excerpt()
        return httpx.Response(answer.status_code, headers=headers, content=content, request=request)


async def _translated(request: httpx.Request) -> Request:
    try:
        url = parse_url(str(request.url.copy_with(userinfo=b"", fragment=None)))
    except ValueError as error:
        raise TargetError(ErrorKind.CONFIG_ERROR, f"the address cannot be used: {error}") from None
    headers = tuple((name, value) for name, value in request.headers.items() if name not in _OURS)
    return Request(request.method, url, headers, await request.aread() or None)


def _foreign(error: HttpError, request: httpx.Request) -> httpx.TransportError:
    kind = _ERRORS.get(error.error.kind, httpx.ConnectError)
    return kind(error.error.message, request=request)


def guarded_client(
    door: Door, manner: Manner | None = None, timeout_seconds: float | None = None
) -> httpx.AsyncClient:
    """A client that goes through the door only: no proxies of the environment, no redirects by itself."""
    return httpx.AsyncClient(
        transport=GuardedTransport(door, manner, timeout_seconds),
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 the transport has one deadline for all of it
        headers={"User-Agent": USER_AGENT},
    )
