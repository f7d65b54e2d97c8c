"""One request and its response over one fresh connection."""

from __future__ import annotations

from dataclasses import dataclass

from shared.domain.errors import ErrorKind
from shared.domain.observation import TlsPeer
from shared.http.door import Door
from shared.http.errors import TargetError
from shared.http.request import Request
from shared.http.resolver import Family
from shared.http.response import ResponseReader
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.tls import OBJECTION_WAIT, TlsPipe, TlsSettings
from shared.http.wire import Wire

_NO_WORD = frozenset({ErrorKind.EMPTY_REPLY, ErrorKind.CONNECTION_RESET})


@dataclass(frozen=True, slots=True)
class Manner:
    """How all requests of one check are made."""

    family: Family = "auto"
    verify: bool = True
    wants_body: bool = True
    follows: bool = True


class Exchange:
    """One request, and how far it came: what is known survives a failure."""

    def __init__(self, request: Request, manner: Manner, door: Door, stopwatch: Stopwatch) -> None:
        self.request = request
        self.remote_address: str | None = None
        self.peer: TlsPeer | None = None
        self.reader: ResponseReader | None = None
        self._manner = manner
        self._door = door
        self._stopwatch = stopwatch

    async def run(self) -> ResponseReader:
        """Send, and read the answer to its end; raises ``HttpError``. The caller sets the deadline."""
        encoded = self.request.encode()
        try:
            return await self._converse(encoded)
        except TargetError as error:
            if error.error.kind in _NO_WORD and self.peer and self.peer.version == "TLSv1.3":
                await self._hear_objection()
            raise

    async def _converse(self, encoded: bytes) -> ResponseReader:
        wire = await self._open(self._stopwatch)
        self.remote_address = wire.address
        try:
            if self.request.url.scheme == "https":
                await self._start_tls(wire)
            self._stopwatch.enter(Phase.FIRST_BYTE, at=None if self.peer else wire.connected_at)
            self.reader = reader = ResponseReader(
                self.request.method,
                self._stopwatch,
                wants_body=self._manner.wants_body,
                follows=self._manner.follows,
            )
            wire.send(encoded)
            wire.attach(reader)
            await reader.done
            return reader
        finally:
            wire.close()

    async def _open(self, stopwatch: Stopwatch) -> Wire:
        url = self.request.url
        return await self._door.open(url.host, url.port, self._manner.family, stopwatch)

    def _pipe(self) -> TlsPipe:
        settings = TlsSettings(verify=self._manner.verify, alpn=("http/1.1",), ca_file=self._door.ca_file)
        return TlsPipe(settings, self.request.url.host)

    async def _start_tls(self, wire: Wire) -> None:
        pipe = self._pipe()
        self._stopwatch.enter(Phase.TLS, at=wire.connected_at)
        try:
            await wire.start_tls(pipe)
        finally:
            self.peer = pipe.peer()

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
