"""A fast local target, in a process of its own so that its CPU does not count as ours."""

from __future__ import annotations

import argparse
import asyncio
import ssl
from typing import cast

import uvloop

BODY = b"x" * 2048
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)


class Target(asyncio.Protocol):
    """Answers each request with 2 KiB and closes, as a fresh connection per check expects."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self._transport.write(ANSWER)
            self._transport.close()


async def serve(port: int, certificate: str | None) -> None:
    context = None
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    server = await asyncio.get_running_loop().create_server(Target, "127.0.0.1", port, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.certificate))
