"""Servers that hold a scripted conversation per connection, and leave none behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def speaking(talk: Talk, listener: socket.socket | None = None) -> AsyncIterator[int]:
    """Serve on loopback, or on this listening socket; what is yielded is the port."""
    running: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client went away, which is how most checks end

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            running.discard(task)
            writer.transport.abort()  # also of a conversation that was cancelled before it began

        task = asyncio.ensure_future(converse(reader, writer))
        running.add(task)
        task.add_done_callback(ended)

    listener = listener or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=listener)
    try:
        yield listener.getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0)  # what was just accepted is told of in the next turn of the loop
        while running:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await asyncio.sleep(0)  # and an aborted transport closes its socket in the next
