"""One request and its response over one fresh connection."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shared.domain.errors import ErrorKind
from shared.domain.observation import TlsPeer
from shared.domain.route import Proxy
from shared.http.answer import BODY_LIMIT, Answer
from shared.http.dial import Tried
from shared.http.door import Door
from shared.http.errors import TargetError
from shared.http.http2 import ALPN, Http2Reader
from shared.http.proxy import forwards, open_through, proxy_fields, refused_by_proxy
from shared.http.request import Request
from shared.http.resolver import Family
from shared.http.response import ResponseReader
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.tls import OBJECTION_WAIT, TlsPipe, TlsSettings
from shared.http.wire import Wire

HttpVersion = Literal["auto", "1.1", "2"]
_NO_WORD = frozenset({ErrorKind.EMPTY_REPLY, ErrorKind.CONNECTION_RESET})
_OFFERS: dict[HttpVersion, tuple[str, ...]] = {"1.1": ("http/1.1",), "auto": (ALPN, "http/1.1"), "2": (ALPN,)}


@dataclass(frozen=True, slots=True)
class Manner:
    """How all requests of one check are made. ``client`` is the PEM of a client certificate with its key."""

    family: Family = "auto"
    verify: bool = True
    wants_body: bool = True
    follows: bool = True
    version: HttpVersion = "1.1"
    proxy: Proxy | None = None
    client: str | None = None
    newest_tls_only: bool = False
    limit: int = BODY_LIMIT


class Exchange:
    """One request, and how far it came: what is known survives a failure."""

    def __init__(self, request: Request, manner: Manner, door: Door, stopwatch: Stopwatch) -> None:
        self.request = request
        self.remote_address: str | None = None
        self.peer: TlsPeer | None = None
        self.reader: Answer | None = None
        self.tried: Tried = {}
        self._manner = manner
        self._door = door
        self._stopwatch = stopwatch

    async def run(self) -> Answer:
        """Send, and read the answer to its end; raises ``HttpError``. The caller sets the deadline."""
        encoded = self._encoded()
        try:
            return await self._converse(encoded)
        except TargetError as error:
            if error.error.kind in _NO_WORD and self.peer and self.peer.version == "TLSv1.3":
                await self._hear_objection()
            raise

    def _encoded(self) -> bytes:
        """Done before anything is dialled: a request that cannot be sent fails here."""
        proxy, url = self._manner.proxy, self.request.url
        if proxy is None or not forwards(proxy, url):
            return self.request.encode()
        return self.request.encode(str(url), proxy_fields(proxy))

    async def _converse(self, encoded: bytes) -> Answer:
        wire = await self._open(self._stopwatch)
        self.remote_address = wire.address
        protocol = ALPN if self._manner.version == "2" else None
        try:
            if self.request.url.scheme == "https":
                protocol = await self._start_tls(wire)
            self._stopwatch.enter(Phase.FIRST_BYTE, at=None if self.peer else wire.connected_at)
            self.reader = reader = self._ask_http2(wire) if protocol == ALPN else self._ask(wire, encoded)
            await reader.done
        finally:
            wire.close()
        proxy = self._manner.proxy
        if reader.status_code == 407 and proxy and forwards(proxy, self.request.url):
            raise refused_by_proxy(proxy)
        return reader

    def _ask(self, wire: Wire, encoded: bytes) -> Answer:
        manner = self._manner
        reader = ResponseReader(
            self.request.method,
            self._stopwatch,
            wants_body=manner.wants_body,
            follows=manner.follows,
            limit=manner.limit,
        )
        wire.send(encoded)
        wire.attach(reader)
        return reader

    def _ask_http2(self, wire: Wire) -> Answer:
        manner = self._manner
        reader = Http2Reader(
            self.request.method,
            self._stopwatch,
            wire.send,
            wants_body=manner.wants_body,
            follows=manner.follows,
            limit=manner.limit,
        )
        reader.ask(self.request)
        wire.attach(reader)
        return reader

    def _open(self, stopwatch: Stopwatch) -> Awaitable[Wire]:
        url, manner = self.request.url, self._manner
        if manner.proxy is None:
            return self._door.open(url.host, url.port, manner.family, stopwatch, self.tried)
        opened = partial(self._door.open, family=manner.family, stopwatch=stopwatch, tried=self.tried)
        return open_through(manner.proxy, self._door, url, opened)

    def _pipe(self) -> TlsPipe:
        manner = self._manner
        settings = TlsSettings(
            verify=manner.verify,
            alpn=_OFFERS[manner.version],
            ca_file=self._door.ca_file,
            client=manner.client,
            newest_only=manner.newest_tls_only,
        )
        return TlsPipe(settings, self.request.url.host)

    async def _start_tls(self, wire: Wire) -> str | None:
        """Shake hands; what is spoken after that, where the server chose something."""
        pipe = self._pipe()
        self._stopwatch.enter(Phase.TLS, at=wire.connected_at)
        try:
            await wire.start_tls(pipe)
        finally:
            self.peer = pipe.peer()
        if self._manner.version == "2" and pipe.protocol != ALPN:
            raise TargetError(ErrorKind.PROTOCOL_ERROR, "the server does not offer HTTP/2")
        return pipe.protocol

    async def _hear_objection(self) -> None:
        """Why did a TLS 1.3 server hang up on the request? Raises ``TargetError`` when it says so.

        Its alert may have been lost: a server that closes with our request unread resets the connection, and a
        reset overtakes the alert. A second handshake without a request leaves nothing unread.
        """
        self._stopwatch.pause()
        wire = await self._open(Stopwatch(self._door.monotonic))
        try:
            await wire.start_tls(self._pipe())
            await wire.settle(OBJECTION_WAIT)
        finally:
            wire.close()
