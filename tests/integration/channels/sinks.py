"""Places that notifications arrive at: real sockets that note what came, and answer as they are told."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """What a sink says; ``wait`` holds it back, ``hang_up`` closes the connection instead."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    wait: float = 0.0
    hang_up: bool = False


@dataclass(frozen=True)
class Arrival:
    """One request; ``at`` is on the monotonic clock, ``answered`` what the sink said to it."""

    at: float
    path: str
    headers: dict[str, str]
    body: bytes
    answered: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Judge = Callable[["Arrival"], Answer]


class HttpSink:
    """Takes POSTs. ``answers`` are used up one by one; then ``judge`` decides, by default 200."""

    def __init__(self, judge: Judge | None = None, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.answers: deque[Answer] = deque()
        self.arrivals: list[Arrival] = []
        self.judge: Judge = judge or (lambda _: Answer())
        self.port = port
        self._tls = tls
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def accepted(self) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if 200 <= arrival.answered < 300]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            arrival = Arrival(time.monotonic(), head[0].split(" ")[1], headers, body, 0)
            answer = self.answers.popleft() if self.answers else self.judge(arrival)
            status = 0 if answer.hang_up else answer.status
            self.arrivals.append(Arrival(arrival.at, arrival.path, headers, body, status))
            await asyncio.sleep(answer.wait)
            if not answer.hang_up:
                writer.write(_encoded(answer))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _encoded(answer: Answer) -> bytes:
    fields = {"Content-Length": str(len(answer.body)), "Connection": "close", **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + answer.body


@asynccontextmanager
async def sink(judge: Judge | None = None) -> AsyncIterator[HttpSink]:
    async with HttpSink(judge) as running:
        yield running
