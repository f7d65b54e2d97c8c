"""A real PostgreSQL for tests: starts in about a second, and can be stopped, killed and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.embedded.postgres import STOP_SIGNAL, SUPERUSER, Postgres

_START_SECONDS = 90


class PostgresServer:
    """One server with its data under ``directory``; as a context manager it runs inside the block.

    ``url`` is the application's role and database, ``superuser_url`` the same database as ``postgres``; both stay
    the same across restarts. Data survive every method but are not safe from a crash of the operating system.
    """

    def __init__(self, directory: Path) -> None:
        self._postgres = Postgres(directory / "postgres", durable=False)
        self._log = directory / "postgres.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return self._postgres.url()

    @property
    def superuser_url(self) -> str:
        return self._postgres.url(role=SUPERUSER)

    @property
    def pid(self) -> int:
        return self._running().pid

    async def start(self) -> None:
        """Return when the server answers; raises ``RuntimeError`` with its log when it never does."""
        await self._postgres.prepare()
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._postgres.command, stdin=asyncio.subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        ready = asyncio.ensure_future(self._postgres.ready())
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait((ready, ended), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            _send(process.pid, signal.SIGKILL)
            await ended
            raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")
        ended.cancel()
        self._process = process

    async def stop(self) -> None:
        """Stop cleanly (fast shutdown): connections are cut, nothing is lost."""
        await self._end(STOP_SIGNAL)

    async def kill(self) -> None:
        """Kill the server and all its processes at once, as a crash does."""
        for pid in (self.pid, *self._backends()):
            _send(pid, signal.SIGKILL)
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def freeze(self) -> None:
        """Stop every process of the server in its tracks: connections stay open and nothing answers."""
        for pid in (self.pid, *self._backends()):
            _send(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in (*self._backends(), self.pid):
            _send(pid, signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            await self.kill()
        self._postgres.close()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    async def _end(self, how: signal.Signals) -> None:
        process = self._running()
        _send(process.pid, how)
        await process.wait()
        self._process = None

    def _backends(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


def _send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass
