"""Child processes that are started in order, kept running, and stopped in reverse order.

Each child leads a session of its own, so that Ctrl-C in the terminal reaches the supervisor alone. That children
end when the supervisor is killed is the business of their commands (``shared.embedded.exec_child``).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.child_log import ChildLog
from cli.restart import History, Life
from shared.domain.clock import Clock
from shared.embedded.exec_child import EXIT_REFUSED

START_SECONDS = 60.0
_ROTATE_EVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Child:
    """A program to keep running. ``ready`` returns once it serves, and is asked anew after every start."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ready: Callable[[], Awaitable[None]]
    metrics_url: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class RunningChild:
    name: str
    pid: int
    metrics_url: str | None


class Observer(Protocol):
    """Whom the supervisor tells what happens."""

    def child_ready(self, child: Child, seconds: float) -> None: ...

    def child_ended(self, child: Child, cause: str, last_line: str, restart_in_seconds: float) -> None: ...

    def children_changed(self, running: Sequence[RunningChild]) -> None: ...


class ChildFailedError(Exception):
    """A child that cannot be kept running; ``log_lines`` are its last words."""

    def __init__(self, name: str, problem: str, log_lines: Sequence[str], log_path: Path) -> None:
        self.log_lines, self.log_path = list(log_lines), log_path
        super().__init__(f"{name} {problem}")


class Supervisor:
    """Starts stages of children, restarts what ends, stops everything."""

    def __init__(self, log_folder: Path, observer: Observer, clock: Clock) -> None:
        self._log_folder = log_folder
        self._observer = observer
        self._clock = clock
        self._stages: list[list[_Keeper]] = []

    async def start(self, *children: Child, within_seconds: float = START_SECONDS) -> None:
        """Start one stage and return when all of it is ready; raises ``ChildFailedError``."""
        stage = [self._keeper(child) for child in children]
        self._stages.append(stage)
        for keeper in stage:
            keeper.launch()
        await asyncio.gather(*(keeper.first_ready(within_seconds) for keeper in stage))

    async def watch(self) -> None:
        """Keep the logs bounded for as long as every child can be kept running; raises ``ChildFailedError``."""
        keepers = [keeper for stage in self._stages for keeper in stage]
        while True:
            await asyncio.wait(
                [keeper.task for keeper in keepers],
                timeout=_ROTATE_EVERY_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for keeper in keepers:
                keeper.raise_failure()
                keeper.log.rotate()

    async def stop(self) -> None:
        """Stop the stages, the last one first; the children of one stage stop side by side."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(keeper.stop() for keeper in stage))
        self._stages.clear()

    def kill(self) -> None:
        """End everything at once; a ``stop`` that is under way returns."""
        for stage in self._stages:
            for keeper in stage:
                keeper.kill()

    def _keeper(self, child: Child) -> _Keeper:
        log = ChildLog(self._log_folder / f"{child.name}.log")
        return _Keeper(child, log, self._observer, self._clock, self._tell_changed)

    def _tell_changed(self) -> None:
        entries = [keeper.running() for stage in self._stages for keeper in stage]
        self._observer.children_changed([entry for entry in entries if entry is not None])


class _Keeper:
    """Keeps one child running."""

    def __init__(
        self, child: Child, log: ChildLog, observer: Observer, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self.log = log
        self._child = child
        self._observer = observer
        self._clock = clock
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._was_ready = asyncio.Event()
        self._cancelled = False

    def launch(self) -> None:
        self.task = asyncio.create_task(self._keep_running(), name=f"keep {self._child.name}")

    def running(self) -> RunningChild | None:
        if self._process is None:
            return None
        return RunningChild(self._child.name, self._process.pid, self._child.metrics_url)

    async def first_ready(self, within_seconds: float) -> None:
        ready = asyncio.create_task(self._was_ready.wait())
        try:
            await asyncio.wait((ready, self.task), timeout=within_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        self.raise_failure()
        if not self._was_ready.is_set():
            raise self._failure(f"was not ready within {within_seconds:g} s")

    def raise_failure(self) -> None:
        if self.task.done():
            self.task.result()

    async def stop(self) -> None:
        self._cancel()
        # A failure has been raised already where it mattered.
        await asyncio.gather(self.task, return_exceptions=True)

    def kill(self) -> None:
        if self._process is not None:
            _send(self._process, signal.SIGKILL)
        self._cancel()

    def _cancel(self) -> None:
        # Only once: a second time would break off the wait for the child's end.
        if not self._cancelled:
            self._cancelled = True
            self.task.cancel()

    async def _keep_running(self) -> None:
        history = History()
        while True:
            life, cause = await self._live()
            history = history.after(life)
            if history.hopeless:
                raise self._failure(f"{cause} and was never ready")
            # Who was killed had no say in it.
            last_line = "".join(self.log.last_lines(1)) if life.exit_code > 0 else ""
            self._observer.child_ended(self._child, cause, last_line, history.delay_seconds)
            await asyncio.sleep(history.delay_seconds)

    async def _live(self) -> tuple[Life, str]:
        born = self._clock.monotonic()
        ready_at: list[float] = []
        try:
            process = self._process = await self._spawn()
        except OSError as error:
            return Life(EXIT_REFUSED, None), f"could not be started: {error.strerror}"
        self._changed()
        readiness = asyncio.create_task(self._note_ready(born, ready_at))
        try:
            exit_code = await process.wait()
        finally:
            readiness.cancel()
            await self._end(process)
        ready_seconds = self._clock.monotonic() - ready_at[0] if ready_at else None
        return Life(exit_code, ready_seconds), _describe_exit(exit_code)

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.log.open() as log:
            return await asyncio.create_subprocess_exec(
                *self._child.command,
                env=dict(self._child.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _note_ready(self, born: float, ready_at: list[float]) -> None:
        await self._child.ready()
        ready_at.append(self._clock.monotonic())
        self._was_ready.set()
        self._observer.child_ready(self._child, ready_at[0] - born)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        try:
            if process.returncode is None:
                _send(process, self._child.stop_signal)
                await asyncio.wait_for(process.wait(), self._child.stop_seconds)
        except TimeoutError:
            _send(process, signal.SIGKILL)
            await process.wait()
        finally:
            self._process = None
            self._changed()

    def _failure(self, problem: str) -> ChildFailedError:
        return ChildFailedError(self._child.name, problem, self.log.last_lines(), self.log.path)


def _send(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    # To the whole group only what cannot be refused: a child passes the polite signals on as it sees fit.
    try:
        if how is signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
    except ProcessLookupError:
        pass


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
