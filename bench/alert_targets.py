"""Targets that fail on demand and the sink of the webhooks in one process, so that one clock times both.

``GET /target/N`` answers 200, or 500 once N was told to fail; ``POST /fail/N`` and ``/mend/N`` tell it; the sink is
``POST /hook``. ``GET /times`` lists ``[monitor, kind, milliseconds]``: from the first failing (or good) answer
after the order to the webhook about it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import uvloop

OPENED, RESOLVED = "incident.opened", "incident.resolved"


class Targets:
    """Who fails, and since when its monitor could know."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.seen: dict[tuple[str, str], float] = {}
        self.waiting: set[tuple[str, str]] = set()
        self.times: list[tuple[str, str, float]] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        match method, path.strip("/").split("/"):
            case "GET", ["target", number]:
                return self._look(number)
            case "POST", ["fail" | "mend" as order, number]:
                (self.failing.add if order == "fail" else self.failing.discard)(number)
                self.waiting.add((number, OPENED if order == "fail" else RESOLVED))
                return 200, b"{}"
            case "POST", ["hook"]:
                self._told(msgspec.json.decode(body))
                return 200, b"{}"
            case "GET", ["times"]:
                return 200, msgspec.json.encode(self.times)
        return 404, b""

    def _look(self, number: str) -> tuple[int, bytes]:
        fails = number in self.failing
        key = (number, OPENED if fails else RESOLVED)
        if key in self.waiting:
            self.waiting.discard(key)
            self.seen[key] = time.perf_counter()
        return (500, b"down") if fails else (200, b"ready")

    def _told(self, event: dict[str, Any]) -> None:
        if event["type"] not in (OPENED, RESOLVED):
            return
        number = event["data"]["monitor"]["name"]
        began = self.seen.pop((number, event["type"]), None)
        if began is not None:
            self.times.append((number, event["type"], (time.perf_counter() - began) * 1000))


async def serve() -> None:
    targets = Targets()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
            )
            status, answer = targets.answer(method, path, await reader.readexactly(length))
            writer.write(
                b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                % (status, len(answer), answer)
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a check that was cut short; the benchmark counts what arrives
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
