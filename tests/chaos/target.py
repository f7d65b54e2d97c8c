"""The web server that all monitors of the chaos suite watch, as a process of its own: it outlives every fault.

``/m/<n>`` answers at once, ``/slow/<seconds>/<n>`` after a while. ``/log?<ms>`` lists the requests since then as
``[path, milliseconds]``; ``/set/<status>`` changes the answer to all checks from then on.
"""

from __future__ import annotations

import asyncio
import json

from shared.domain.clock import SystemClock

clock = SystemClock()


class Target:
    """Answers, and writes down who asked when."""

    def __init__(self) -> None:
        self._status = 200
        self._log: list[tuple[str, int]] = []

    async def serve(self) -> None:
        """Print the port and serve until killed."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, body = await self._answer(head.split(b" ", 2)[1].decode())
            writer.write(
                f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            )
            writer.write(body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # a worker that is killed hangs up in the middle
        finally:
            writer.close()

    async def _answer(self, path: str) -> tuple[int, bytes]:
        action, _, rest = path.removeprefix("/").partition("/")
        if path.startswith("/log?"):
            since = int(path.removeprefix("/log?"))
            return 200, json.dumps([entry for entry in self._log if entry[1] >= since]).encode()
        if action == "set":
            self._status = int(rest)
            return 200, b""
        self._log.append((path, clock.now_ms()))
        if action == "slow":
            await asyncio.sleep(float(rest.partition("/")[0]))
        return self._status, b"here"


if __name__ == "__main__":
    asyncio.run(Target().serve())
