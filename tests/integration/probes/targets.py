"""Targets for the probes: servers that answer with exactly the bytes a test wants, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from shared.http.resolver import Family
from shared.testing.nats import free_port

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Target:
    """A running server; ``requests`` is what it received, ``connections`` how many were accepted."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    server: asyncio.Server | None = None

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def header(self, number: int, name: str) -> str | None:
        """A field of the request with this number, or null."""
        for line in self.requests[number].decode("latin-1").split("\r\n")[1:]:
            field_name, _, value = line.partition(":")
            if field_name.lower() == name.lower():
                return value.strip()
        return None


def answer(status: str = "200 OK", body: bytes = b"", *headers: str, length: bool = True) -> bytes:
    """The bytes of a response, with Content-Length unless told otherwise."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@contextlib.asynccontextmanager
async def serve(
    reply: bytes | Handler,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    linger: bool = False,
) -> AsyncIterator[Target]:
    """Serve one request per connection; with ``linger`` the connection is left open until the client goes."""
    target = Target(0)
    running: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target.connections += 1
        try:
            await _one_request(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client went away, which is part of many tests
        finally:
            writer.transport.abort()

    async def _one_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        target.requests.append(request)
        if callable(reply):
            await reply(request, writer)
        else:
            writer.write(reply)
        await writer.drain()
        if linger:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(converse(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(accept, host, port, ssl=tls)
    target.server, target.port = server, server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def path_of(request: bytes) -> str:
    return request.split(b" ", 2)[1].decode("latin-1")


@contextlib.contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port whose accept queue is full, a free one unless it is named: further connections hang."""
    with contextlib.ExitStack() as stack:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = stack.enter_context(socket.socket(family))
        listener.bind((host, port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(3):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex((host, port))
        yield port


def closed_port() -> int:
    """A port that nobody listens on."""
    return free_port()


class Names:
    """A name service with scripted answers, one list per lookup; the last one is repeated."""

    def __init__(self, answers: dict[str, list[tuple[str, ...]]]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        self.asked.append(host)
        if host not in self._answers:
            return (host,)
        script = self._answers[host]
        found = script.pop(0) if len(script) > 1 else script[0]
        return tuple(each for each in found if family == "auto" or (":" in each) == (family == "6"))


@contextlib.contextmanager
def blocking_tls(context: ssl.SSLContext, reply: bytes) -> Iterator[int]:
    """A TLS server on a thread: unlike asyncio's it sends the alert when it refuses a client."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                _serve_blocking(context, connection, reply)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _serve_blocking(context: ssl.SSLContext, connection: socket.socket, reply: bytes) -> None:
    try:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            wrapped.sendall(reply)
    except OSError:
        pass  # refused clients are what it is for
