"""Our processes as an operator has them: started from the command line, told things by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from shared.testing.tocsin import eventually

READY_SECONDS = 60.0
STOP_SECONDS = 40.0


class Service:
    """One process of ours; started again it keeps its name, port and environment."""

    def __init__(
        self, name: str, program: Sequence[str], port: int, environment: Mapping[str, str], log: Path
    ) -> None:
        self.name, self.port, self.log = name, port, log
        self._program = program
        port_setting = "TOCSIN_API_PORT" if name.startswith("api") else "TOCSIN_METRICS_PORT"
        self._environment = {**environment, port_setting: str(port)}
        self._process: asyncio.subprocess.Process | None = None

    def successor(self, port: int, folder: Path) -> Service:
        """The same process for a rolling update, beside this one."""
        environment = {**self._environment, "TOCSIN_READY_FILE": str(folder / f"{self.name}-{port}.ready")}
        return Service(self.name, self._program, port, environment, self.log)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Spawn the process; ``wait_until_ready`` waits for it."""
        assert not self.is_running, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", *self._program,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
            )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and gone."""
        self.send(signal.SIGKILL)
        await self.wait()

    async def terminate(self) -> int:
        """SIGTERM; answers the exit code."""
        self.send(signal.SIGTERM)
        return await self.wait()

    async def wait(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        async with asyncio.timeout(STOP_SECONDS):
            return await self._process.wait()

    async def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self.is_running:
            self.send(signal.SIGCONT)
            await self.kill()

    async def is_ready(self) -> bool:
        return self.is_running and (await self._get("/readyz")).status_code == httpx.codes.OK

    async def wait_until_ready(self) -> None:
        await eventually(f"{self.name} ready", self.is_ready, within=READY_SECONDS)

    async def metric(self, name: str) -> float:
        """The value of a metric without labels; 0 when the process does not show it, or does not answer."""
        if not self.is_running:
            return 0.0
        try:
            text = (await self._get("/metrics")).text
        except httpx.TransportError:
            return 0.0
        values = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=1.0) as client:
            return await client.get(f"http://127.0.0.1:{self.port}{path}")
