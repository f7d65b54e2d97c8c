"""One fresh connection: bytes out, bytes in, plain or through TLS.

TLS runs over memory buffers here instead of asyncio's own layer. That keeps the peer's certificates when their
verification failed, separates the time of TCP from that of TLS, and takes a fraction of the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from shared.http.errors import HttpError, TargetError, reset_error
from shared.http.tls import TlsPipe
from shared.http.tls_failures import handshake_cut_short

TURN = 262_144
"""Bytes of one connection that are read before others have their turn: uvloop reads on while more is there."""


class Receiver(Protocol):
    """Whoever reads what comes in."""

    def received(self, data: bytes) -> None:
        """Take the next bytes (decrypted)."""
        ...

    def ended(self, error: HttpError | None) -> None:
        """The connection is over: in order, or broken by ``error``. Called once."""
        ...


class Wire(asyncio.Protocol):
    """A connection whose opener calls ``start_tls``, ``attach`` and ``send`` in this order, then ``close``."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._transport: asyncio.Transport | None = None
        self._pipe: TlsPipe | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._receiver: Receiver | None = None
        self._settled: asyncio.Future[None] | None = None
        self._early: list[bytes] = []
        self._end: tuple[HttpError | None] | None = None
        self._turn = 0
        self.connected_at = 0.0
        self.address = ""

    # What its opener does.

    async def start_tls(self, pipe: TlsPipe) -> None:
        """Shake hands; raises ``TargetError``. The pipe holds the peer's certificates in either case."""
        self._handshake = asyncio.get_running_loop().create_future()
        self._pipe = pipe
        self._receiver = None  # whoever spoke before this has done its part
        early, self._early = b"".join(self._early), []
        self._step(early)
        if self._end and not self._handshake.done():
            self._fail_handshake(self._end[0])
        await self._handshake

    def attach(self, receiver: Receiver) -> None:
        """Hand over what comes in from now on, beginning with what has come already."""
        self._receiver = receiver
        early, self._early = self._early, []
        for data in early:
            receiver.received(data)
        if self._end:
            receiver.ended(self._end[0])

    def send(self, data: bytes) -> None:
        if self._transport is None or self._end:
            return  # ``ended`` says why nothing will be answered
        if self._pipe:
            data = self._pipe.encrypt(data)
        self._transport.write(data)

    async def settle(self, seconds: float) -> None:
        """Wait for the first sign of life after a handshake, at most so long; raises ``TargetError`` for an alert.

        In TLS 1.3 the client is done first. A server that accepts it usually sends session tickets then; one that
        misses a client certificate says so only now. Silence is no objection.
        """
        settled = self._settled = asyncio.get_running_loop().create_future()
        if self._end:
            self._settle(self._end[0])
        else:
            self._flush()
        try:
            async with asyncio.timeout(seconds):
                await settled
        except TimeoutError:
            pass

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected_at = self._monotonic()
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        self._turn += len(data)
        if self._turn > TURN:
            self._give_way()
        if self._handshake is not None and not self._handshake.done():
            self._step(data)
        elif self._pipe:
            self._decrypt(data)
        else:
            self._pass_on(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(reset_error(exc) if isinstance(exc, OSError) else None)

    # Between the two.

    def _give_way(self) -> None:
        assert self._transport
        self._turn = 0
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def _step(self, data: bytes) -> None:
        assert self._pipe
        assert self._handshake
        assert self._transport
        try:
            finished = self._pipe.shake(data)
        except TargetError as error:
            self._flush()
            self._handshake.set_exception(error)
            return
        if not finished:
            self._flush()
            return
        # Our last flight stays in the pipe, to leave in one packet with the request.
        self._handshake.set_result(None)
        if self._pipe.has_input:
            self._decrypt(b"")

    def _flush(self) -> None:
        assert self._pipe
        assert self._transport
        if pending := self._pipe.pending():
            self._transport.write(pending)

    def _decrypt(self, data: bytes) -> None:
        assert self._pipe
        try:
            for piece in self._pipe.decrypt(data):
                self._pass_on(piece)
        except TargetError as error:
            self._finish(error)
            return
        self._flush()
        if self._pipe.closed_by_peer:
            self._finish(None)
        elif data:
            self._settle(None)

    def _pass_on(self, data: bytes) -> None:
        if self._receiver is None:
            self._early.append(data)
        else:
            self._receiver.received(data)

    def _finish(self, error: HttpError | None) -> None:
        if self._end is not None:
            return
        self._end = (error,)
        if self._handshake is not None and not self._handshake.done():
            self._fail_handshake(error)
            return
        self._settle(error)
        if self._receiver is not None:
            self._receiver.ended(error)

    def _settle(self, error: HttpError | None) -> None:
        if self._settled is None or self._settled.done():
            return
        if error is not None and error.error.kind.startswith("tls_"):
            self._settled.set_exception(error)
        else:
            self._settled.set_result(None)

    def _fail_handshake(self, error: HttpError | None) -> None:
        assert self._handshake
        if error is not None:
            error = TargetError(error.error.kind, f"{error.error.message} during the TLS handshake")
        self._handshake.set_exception(error or handshake_cut_short())
