"""Real child processes, kept running and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cli import child_log, restart
from cli.child_log import ChildLog
from cli.one_shot import run_to_end
from cli.supervisor import Child, ChildFailedError, RunningChild, Supervisor
from shared.domain.clock import SystemClock
from shared.embedded.exec_child import wrap
from shared.embedded.waiting import wait_until
from tests.integration.embedded.processes import eventually, is_alive

# Each says what happens to it in a file; "ready" appears there once it serves.
SERVES = """
import pathlib, signal, sys, time
events = pathlib.Path(sys.argv[1])
def stop(number, frame):
    with events.open("a") as file: file.write(f"{sys.argv[2]} stopped\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
with events.open("a") as file: file.write(f"{sys.argv[2]} ready\\n")
print("serving", flush=True)
time.sleep(60)
"""
IGNORES_SIGTERM = SERVES.replace(
    "signal.signal(signal.SIGTERM, stop)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
)
FAILS = "import sys; print('first'); print('no database', file=sys.stderr); sys.exit({code})"


class Witness:
    """Remembers what the supervisor told."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        self.ended: list[tuple[str, str, str, float]] = []
        self.running: list[RunningChild] = []

    def child_ready(self, child: Child, seconds: float) -> None:
        assert seconds >= 0
        self.ready.append(child.name)

    def child_ended(self, child: Child, cause: str, last_line: str, restart_in_seconds: float) -> None:
        self.ended.append((child.name, cause, last_line, restart_in_seconds))

    def children_changed(self, running: Sequence[RunningChild]) -> None:
        self.running = list(running)

    def pid(self, name: str) -> int:
        return next((child.pid for child in self.running if child.name == name), 0)


class Stage:
    """A supervisor with its log folder and its witness."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.events.touch()
        self.witness = Witness()
        self.supervisor = Supervisor(folder, self.witness, SystemClock())

    def child(self, name: str, program: str = SERVES, stop_seconds: float = 5) -> Child:
        async def is_ready() -> bool:
            return self.lines().count(f"{name} ready") > self.witness.ready.count(name)

        return Child(
            name=name,
            command=wrap((sys.executable, "-c", program, str(self.events), name)),
            environment=os.environ,
            ready=lambda: wait_until(is_ready),
            stop_seconds=stop_seconds,
        )

    def lines(self) -> list[str]:
        return self.events.read_text().splitlines()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.supervisor.kill()
    await stage.supervisor.stop()


async def test_stages_start_in_order_and_stop_in_reverse(stage: Stage) -> None:
    for name in ("database", "api", "worker"):
        await stage.supervisor.start(stage.child(name))
    assert stage.witness.ready == ["database", "api", "worker"]
    pids = [stage.witness.pid(name) for name in stage.witness.ready]
    await stage.supervisor.stop()
    assert stage.lines()[3:] == ["worker stopped", "api stopped", "database stopped"]
    assert stage.witness.running == []
    assert not any(is_alive(pid) for pid in pids)


async def test_a_killed_child_is_back_after_half_a_second(stage: Stage) -> None:
    await stage.supervisor.start(stage.child("worker"))
    first = stage.witness.pid("worker")
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: stage.witness.ready == ["worker", "worker"])
    assert stage.witness.pid("worker") not in {0, first}
    assert stage.witness.ended == [("worker", "was ended by SIGKILL", "", 0.5)]


async def test_a_child_that_is_away_is_not_listed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "FIRST_DELAY_SECONDS", 60)
    await stage.supervisor.start(stage.child("worker"), stage.child("scheduler"))
    os.kill(stage.witness.pid("worker"), signal.SIGKILL)
    await eventually(lambda: [child.name for child in stage.witness.running] == ["scheduler"])


async def test_a_wrong_configuration_fails_at_once_and_shows_the_last_lines(stage: Stage) -> None:
    with pytest.raises(ChildFailedError, match="worker ended with exit code 2") as caught:
        await stage.supervisor.start(stage.child("worker", FAILS.format(code=2)))
    assert set(caught.value.log_lines) == {"first", "no database"}
    assert stage.witness.ended == []


async def test_a_program_that_cannot_be_started_is_retried_and_then_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "FIRST_DELAY_SECONDS", 0.01)
    child = replace(stage.child("worker"), command=("/nowhere/program",))
    with pytest.raises(ChildFailedError, match="worker could not be started: No such file or directory"):
        await stage.supervisor.start(child)
    assert len(stage.witness.ended) == restart.MAX_FAILED_STARTS - 1


async def test_a_child_that_never_becomes_ready_is_given_up(stage: Stage) -> None:
    with pytest.raises(ChildFailedError, match="was not ready within 5 s") as caught:
        await stage.supervisor.start(stage.child("other", SERVES.replace("ready", "busy")), within_seconds=5)
    assert caught.value.log_lines == ["serving"]


async def test_a_child_that_does_not_listen_is_killed_after_its_time(stage: Stage) -> None:
    await stage.supervisor.start(stage.child("deaf", IGNORES_SIGTERM, stop_seconds=0.3))
    pid = stage.witness.pid("deaf")
    await stage.supervisor.stop()
    assert not is_alive(pid)


async def test_a_kill_ends_a_stop_that_takes_too_long(stage: Stage) -> None:
    await stage.supervisor.start(stage.child("database"))
    await stage.supervisor.start(stage.child("deaf", IGNORES_SIGTERM, stop_seconds=60))
    pids = [stage.witness.pid(name) for name in ("database", "deaf")]
    stop = asyncio.create_task(stage.supervisor.stop())
    await asyncio.sleep(0)
    stage.supervisor.kill()
    await asyncio.wait_for(stop, 20)
    assert not any(is_alive(pid) for pid in pids)


async def test_a_stop_does_not_wait_for_a_restart_that_is_due(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "FIRST_DELAY_SECONDS", 60)
    monkeypatch.setattr(restart, "MAX_DELAY_SECONDS", 60)
    await stage.supervisor.start(stage.child("worker"))
    os.kill(stage.witness.pid("worker"), signal.SIGKILL)
    await eventually(lambda: bool(stage.witness.ended))
    await asyncio.wait_for(stage.supervisor.stop(), 20)
    assert stage.witness.ready == ["worker"]


async def test_the_terminal_cannot_interrupt_a_child(stage: Stage) -> None:
    await stage.supervisor.start(stage.child("worker"))
    pid = stage.witness.pid("worker")
    assert os.getsid(pid) == os.getpgid(pid) == pid


async def test_logs_stay_bounded_while_they_are_written(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_log, "MAX_BYTES", 1000)
    log = ChildLog(stage.folder / "worker.log")
    with log.open() as file:
        file.write(b"old\n" * 500)
        file.flush()
        log.rotate()
        file.write(b"new\n")
        file.flush()
        assert log.last_lines() == ["new"]
    assert (stage.folder / "worker.log").read_bytes() == b"new\n"
    assert (stage.folder / "worker.log.1").read_bytes() == b"old\n" * 500


async def test_only_the_last_life_speaks_in_an_error(stage: Stage) -> None:
    log = ChildLog(stage.folder / "worker.log")
    for text in (b"life 1\n", b"life 2\n"):
        with log.open() as file:
            file.write(text)
    assert log.last_lines() == ["life 2"]


async def test_a_one_shot_command_gives_its_output(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print('answer')")
    assert await run_to_end("ask", command, os.environ, tmp_path) == "answer\n"


async def test_a_one_shot_command_that_fails_shows_why(tmp_path: Path) -> None:
    with pytest.raises(ChildFailedError, match="migrate ended with exit code 3") as caught:
        await run_to_end("migrate", (sys.executable, "-c", FAILS.format(code=3)), os.environ, tmp_path)
    assert caught.value.log_lines == ["no database"]
