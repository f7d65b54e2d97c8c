"""``/livez``, ``/readyz`` and ``/metrics`` for processes that serve nothing else, and the readiness file.

Readiness is asked of the work, not of a connection: each named probe says whether its part is being done, so a
process that is connected but deaf turns unready (see ``docs/resilience.md``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

log = structlog.get_logger(__name__)

# A probe answers None when its part is healthy, else a sentence that says what is wrong.
Probe = Callable[[], str | None]
_JSON = "application/json"
_REQUEST_LIMIT = 8192


class Health:
    """Named probes; the process is ready while each of them is content."""

    def __init__(self, ready: Mapping[str, Probe], live: Mapping[str, Probe] | None = None) -> None:
        self._ready, self._live = dict(ready), dict(live or {})

    def readiness(self) -> dict[str, str | None]:
        return {name: probe() for name, probe in self._ready.items()}

    def liveness(self) -> dict[str, str | None]:
        return {name: probe() for name, probe in self._live.items()}


def report(checks: Mapping[str, str | None]) -> tuple[HTTPStatus, bytes]:
    """The answer to a health request: 200 or 503, and each dependency by name."""
    failing = any(checks.values())
    body = {
        "status": "unavailable" if failing else "ok",
        "checks": {name: problem or "ok" for name, problem in checks.items()},
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if failing else HTTPStatus.OK
    return status, json.dumps(body).encode()


class HealthServer:
    """A server of three GET routes, small enough to have in every process."""

    def __init__(self, health: Health, host: str, port: int) -> None:
        self._health, self._host, self._port = health, host, port
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None, "the server is not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen; raises ``OSError`` when the address is in use."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=_REQUEST_LIMIT)

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head)
                writer.write(_response(status, kind, body))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a probe that does not finish its request gets no answer
        finally:
            writer.close()
            with suppress(ConnectionError, TimeoutError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        method, path, *_ = head.split(b" ", 2)
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _JSON, b"{}"
        match path.partition(b"?")[0]:
            case b"/livez":
                status, body = report(self._health.liveness())
                return status, _JSON, body
            case b"/readyz":
                status, body = report(self._health.readiness())
                return status, _JSON, body
            case b"/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(REGISTRY)
        return HTTPStatus.NOT_FOUND, _JSON, b"{}"


def _response(status: HTTPStatus, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def keep_ready_file(path: Path, health: Health, every_seconds: float = 0.5) -> None:
    """Keep the readiness file in step with the probes, until cancelled; then it is gone."""
    ready: bool | None = None
    path.unlink(missing_ok=True)  # one left over by a killed predecessor would lie
    try:
        while True:
            problems = {name: problem for name, problem in health.readiness().items() if problem}
            if ready is not (not problems):
                ready = not problems
                log.info("ready" if ready else "not ready", **problems)
            if ready:
                path.touch()
            else:
                path.unlink(missing_ok=True)
            await asyncio.sleep(every_seconds)
    finally:
        path.unlink(missing_ok=True)
