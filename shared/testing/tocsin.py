"""``tocsin up`` as a user runs it: a real process with real servers, driven over REST and by signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

START_SECONDS = 180.0
STOP_SECONDS = 120.0


async def eventually(
    what: str, condition: Callable[[], Awaitable[Any]], *, within: float = 60.0, every: float = 0.05
) -> Any:
    """The first truthy answer of ``condition``; raises ``AssertionError`` when there is none in time.

    The default limit is patience with a busy machine, not a promise; who tests a promise says ``within``. An HTTP
    client's error counts as "not yet": processes are restarted under it on purpose.
    """
    answer: Any = None
    try:
        async with asyncio.timeout(within):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = await condition()
                    if answer:
                        return answer
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within:g} s; last seen: {answer!r}") from None


class Tocsin:
    """One installation in a directory. As a context manager it runs inside the block, ready from its start on."""

    def __init__(self, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._options = ("--data-dir", str(data), "--port", "0", *options)
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._client: httpx.AsyncClient | None = None

    @property
    def output(self) -> Path:
        """What the command printed."""
        return self.data.with_suffix(".out")

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    @property
    def client(self) -> httpx.AsyncClient:
        """Speaks to the API with the first key."""
        assert self._client is not None, "it is not running"
        return self._client

    async def start(self) -> None:
        """Return when the API and every child are ready; raises ``RuntimeError`` with the output if it ends."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cli.main", "up", *self._options,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment,
            )  # fmt: skip
        async with asyncio.timeout(START_SECONDS):
            while b"Tocsin is running" not in self.output.read_bytes()[self._seen :]:
                if self._process.returncode is not None:
                    raise RuntimeError(f"tocsin up ended: {self.output.read_text()[-3000:]}")
                await asyncio.sleep(0.05)
        self._seen = self.output.stat().st_size
        self._client = self._new_client()

    _seen = 0

    def _new_client(self) -> httpx.AsyncClient:
        credentials = json.loads((self.data / "credentials.json").read_text())
        headers = {"Authorization": f"Bearer {credentials['api_key']}"}
        return httpx.AsyncClient(base_url=credentials["api_url"], headers=headers, timeout=30, trust_env=False)

    async def stop(self) -> int:
        """SIGTERM; answers the exit code."""
        assert self._process is not None, "it is not running"
        if self._client:
            await self._client.aclose()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            return await self._process.wait()

    def processes(self) -> dict[str, dict[str, Any]]:
        """``processes.json`` by name."""
        return {item["name"]: item for item in json.loads((self.data / "processes.json").read_text())}

    def send(self, name: str, how: signal.Signals) -> int:
        """Send a signal to a child; answers its pid."""
        pid: int = self.processes()[name]["pid"]
        os.kill(pid, how)
        return pid

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # or it would go on beside the tests that follow
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def create_monitor(self, **fields: Any) -> dict[str, Any]:
        """POST /v1/monitors; answers the monitor and raises on anything but success."""
        answer = await self.client.post("/v1/monitors", json=fields)
        assert answer.status_code == 201, answer.text
        monitor: dict[str, Any] = answer.json()
        return monitor

    async def monitor(self, monitor_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/monitors/{monitor_id}")
        answer.raise_for_status()
        monitor: dict[str, Any] = answer.json()
        return monitor

    async def results(self, monitor_id: str, **query: Any) -> list[dict[str, Any]]:
        """All results, newest first, page by page."""
        found: list[dict[str, Any]] = []
        parameters = {"limit": 1000, **query}
        while True:
            answer = await self.client.get(f"/v1/monitors/{monitor_id}/results", params=parameters)
            answer.raise_for_status()
            page = answer.json()
            found += page["items"]
            if not page["next_cursor"]:
                return found
            parameters["cursor"] = page["next_cursor"]
