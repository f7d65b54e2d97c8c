"""An HTTP/2 server for tests: one answer to each request, and the requests for the test to look at."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

Reply = Callable[[H2Connection, "Received"], None]


@dataclass
class Received:
    """One request."""

    stream: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Http2Target:
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    transports: list[asyncio.BaseTransport] = field(default_factory=list)

    def url(self, path: str = "/", *, scheme: str = "https") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"


def says(status: int, body: bytes = b"", *fields: tuple[str, str], chunk: int = 16384) -> Reply:
    """An answer with a status, fields and a body."""

    def reply(connection: H2Connection, request: Received) -> None:
        ends = not body
        connection.send_headers(request.stream, [(":status", str(status)), *fields], end_stream=ends)
        for start in range(0, len(body), chunk):
            piece = body[start : start + chunk]
            connection.send_data(request.stream, piece, end_stream=start + chunk >= len(body))

    return reply


class _Server(asyncio.Protocol):
    def __init__(self, target: Http2Target, reply: Reply) -> None:
        self._target, self._reply = target, reply
        self._connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._request = Received(0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._target.transports.append(transport)
        self._connection.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive_data(data):
            if isinstance(event, RequestReceived):
                self._request = Received(event.stream_id or 0, dict(event.headers or ()))  # type: ignore[arg-type]  # decoded by the configuration above
            elif isinstance(event, DataReceived):
                self._request.body += event.data or b""
                self._connection.acknowledge_received_data(event.flow_controlled_length or 0, self._request.stream)
            elif isinstance(event, StreamEnded):
                self._target.requests.append(self._request)
                self._reply(self._connection, self._request)
        self._flush()

    def _flush(self) -> None:
        self._transport.write(self._connection.data_to_send())  # type: ignore[attr-defined]  # a stream's transport


@contextlib.asynccontextmanager
async def serve_http2(reply: Reply, tls: ssl.SSLContext | None) -> AsyncIterator[Http2Target]:
    """Serve HTTP/2: over TLS when it is chosen there, without it to whoever begins with it."""
    target = Http2Target()
    if tls:
        tls.set_alpn_protocols(["h2"])
    server = await asyncio.get_running_loop().create_server(lambda: _Server(target, reply), "127.0.0.1", 0, ssl=tls)
    target.port = server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        for transport in target.transports:
            transport.abort()  # type: ignore[attr-defined]  # a stream's transport
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn of the loop
