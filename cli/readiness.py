"""Ask a process of ours whether it is ready, without an HTTP library: the supervisor stays small."""

from __future__ import annotations

import asyncio
import errno
import socket

from shared.embedded.waiting import wait_until

_ANSWER_SECONDS = 2.0


async def ready_over_http(host: str, port: int) -> None:
    """Return as soon as ``GET /readyz`` answers 200."""
    await wait_until(lambda: _answers_ok(host, port))


async def _answers_ok(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                status_line = await reader.readline()
            finally:
                writer.close()
        return status_line.split(b" ")[1:2] == [b"200"]
    except (OSError, TimeoutError):
        return False


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now; raises ``OSError`` for an address that is not of this machine."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True
