"""Worker processes that are killed and started again, and what became of the tasks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.contracts.names import DEAD_LETTERS_STREAM, TASKS_STREAM
from shared.messaging.connect import NatsConnection
from shared.tasks import execution
from shared.testing.tocsin import eventually
from tests.integration.tasks.work import Diary, Job, run

# A server that has everything imported forks a worker in milliseconds.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.integration.tasks.work"])


class Crew:
    """Keeps ``size`` workers running: one that died is replaced at once."""

    def __init__(self, url: str, connection: NatsConnection, folder: Path) -> None:
        self._url, self._connection = url, connection
        self._folder = folder
        self.diary = Diary(folder / "diary")
        self.workers: list[ForkServerProcess] = []
        self.deaths = 0
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            await asyncio.to_thread(worker.join)
            worker.close()

    def start(
        self, size: int = 1, *, concurrency: int = 4, traps: bool = False, lost_runs: int = execution.LOST_RUNS
    ) -> None:
        trap = self._folder / "traps" if traps else None
        if trap:
            trap.mkdir()
        self._job = Job(self._url, self._folder / "diary", concurrency, trap, lost_runs)
        self.workers = [self._worker() for _ in range(size)]
        self._keeper = asyncio.create_task(self._keep())

    def freeze(self) -> list[int]:
        """SIGSTOP every worker; answers their process ids."""
        frozen = [worker.pid for worker in self.workers if worker.pid]
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        return frozen

    def add(self) -> None:
        """One worker more."""
        self.workers.append(self._worker())

    async def done(self, within: float = 90.0, left: int = 0) -> None:
        """Every task but ``left`` is settled, one way or the other; a worker does that after its last line."""

        async def settled() -> bool:
            return await self.messages(TASKS_STREAM) == left

        await eventually(f"every task but {left} is settled", settled, within=within)

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await eventually(what, holds, within=90)

    def snapped(self) -> set[str]:
        """Names of the tasks in whose traps a worker died."""
        return {mark.name for mark in (self._folder / "traps").iterdir()}

    def log(self) -> str:
        """What the workers logged."""
        path = self._folder / "diary.log"
        return path.read_text() if path.exists() else ""

    async def letters(self) -> int:
        return await self.messages(DEAD_LETTERS_STREAM)

    async def messages(self, stream: str) -> int:
        return int((await self._connection.js.stream_info(stream)).state.messages)

    def runs(self, task_id: str) -> list[tuple[int, float]]:
        """Attempt and time of each run, in order."""
        return [(int(line[1]), float(line[2])) for line in self.diary.lines("run") if line[0] == task_id]

    def _worker(self) -> ForkServerProcess:
        process = _processes.Process(target=run, args=(self._job,))
        process.start()
        return process

    async def _keep(self) -> None:
        while True:
            for index, worker in enumerate(self.workers):
                if not worker.is_alive():
                    self.deaths += 1
                    worker.close()
                    self.workers[index] = self._worker()
            await asyncio.sleep(0.01)
