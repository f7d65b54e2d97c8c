"""``tocsin up`` as a whole: the real command, its files, its children, its end."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from shared.embedded.exec_child import User, wrap
from shared.testing.tocsin import START_SECONDS, STOP_SECONDS, Tocsin, eventually
from tests.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

CHILDREN = ["postgres", "nats", "api", "scheduler-1", "scheduler-2", "worker-1"]
MONITOR = {
    "name": "Kept",
    "interval_seconds": 60,
    "check": {"kind": "ssl", "host": "127.0.0.1", "port": 9},
}
ORDINARY_USER = pwd.getpwnam("daemon").pw_uid
PYTHON = Path(sys.executable).resolve()
UP = (sys.executable, "-m", "cli.main", "up")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tocsin(data: Path) -> AsyncIterator[Tocsin]:
    async with Tocsin(data) as tocsin:
        yield tocsin


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(tocsin: Tocsin) -> list[int]:
    return [process["pid"] for process in tocsin.processes().values()]


async def until(what: str, condition: Callable[[], bool], *, within: float = 90) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(what, holds, within=within)


async def run_up(*options: str) -> tuple[int, str]:
    return await run(*UP, *options, within=400)


async def test_the_first_start_writes_credentials_for_their_owner_only(tocsin: Tocsin, data: Path) -> None:
    credentials = json.loads((data / "credentials.json").read_text())
    assert set(credentials) == {"api_url", "api_key", "email", "password"}
    assert [mode(data / name) for name in ("credentials.json", "secrets", "nats/nats.conf")] == [0o600] * 3
    assert (await tocsin.client.get("/v1/monitors")).status_code == 200
    logs = b"".join(path.read_bytes() for path in (data / "logs").iterdir())
    assert credentials["api_key"].encode() not in logs + tocsin.output.read_bytes()
    assert credentials["password"].encode() not in logs + tocsin.output.read_bytes()


async def test_every_process_is_listed_with_its_pid_and_metrics(tocsin: Tocsin) -> None:
    processes = tocsin.processes()
    assert sorted(processes) == sorted(CHILDREN)
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        for name, process in processes.items():
            assert is_alive(process["pid"])
            if name != "postgres":
                assert (await client.get(process["metrics_url"])).status_code == 200
    assert processes["postgres"]["metrics_url"] is None


async def test_the_ready_block_tells_where_everything_is(tocsin: Tocsin, data: Path) -> None:
    output = tocsin.output.read_text()
    api_url = json.loads((data / "credentials.json").read_text())["api_url"]
    for expected in (f"{api_url}/docs", str(data / "credentials.json"), "private addresses too", "ready in"):
        assert expected in output
    assert "\x1b" not in output


@pytest.mark.skipif(shutil.which("curl") is None, reason="the command that is shown uses curl")
async def test_the_command_it_shows_works_as_it_stands(tocsin: Tocsin) -> None:
    shown = tocsin.output.read_text().partition("Create a first monitor:")[2].strip()
    # Only the target is changed: nothing leaves this machine.
    command = shown.replace("https://example.com", "http://127.0.0.1:9/")
    code, answer = await run("/bin/sh", "-c", command.replace("curl", "curl --silent --show-error"))
    assert (code, json.loads(answer)["name"]) == (0, "Example")


async def test_the_supervisor_is_small(tocsin: Tocsin) -> None:
    status = Path(f"/proc/{tocsin.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 35_000, f"{resident} kB"


async def test_a_second_up_on_the_same_folder_is_refused_in_one_line(tocsin: Tocsin, data: Path) -> None:
    code, output = await run_up("--data-dir", str(data), "--port", "0")
    assert (code, output) == (
        2, f"tocsin: {data} is in use by another tocsin up: stop that one, or choose another --data-dir\n"
    )  # fmt: skip
    assert all(is_alive(pid) for pid in pids(tocsin))


@pytest.mark.parametrize("name", CHILDREN)
async def test_a_killed_child_is_back_soon_with_its_address(tocsin: Tocsin, name: str) -> None:
    before = tocsin.processes()[name]
    readers = len(tocsin.output.read_text().split("is ready again"))
    tocsin.send(name, signal.SIGKILL)
    await until(f"{name} is back", lambda: len(tocsin.output.read_text().split("is ready again")) > readers)
    after = tocsin.processes()[name]
    assert after["pid"] != before["pid"]
    assert after["metrics_url"] == before["metrics_url"]

    async def serves() -> bool:
        return (await tocsin.client.get("/readyz")).status_code == 200

    await eventually("the API is ready", serves)


async def test_sigterm_stops_everything_and_the_next_start_finds_it_again(tocsin: Tocsin, data: Path) -> None:
    monitor = await tocsin.create_monitor(**MONITOR)
    before = json.loads((data / "credentials.json").read_text())
    children = pids(tocsin)
    assert await tocsin.stop() == 0
    assert not any(is_alive(pid) for pid in children)
    assert tocsin.processes() == {}

    await tocsin.start()
    assert json.loads((data / "credentials.json").read_text()) == before
    assert (await tocsin.monitor(monitor["id"]))["name"] == "Kept"


async def test_children_end_with_a_supervisor_that_is_killed(tocsin: Tocsin) -> None:
    children = pids(tocsin)
    os.kill(tocsin.pid, signal.SIGKILL)
    await tocsin.stop()
    await until("no child is left", lambda: not any(is_alive(pid) for pid in children))
    await tocsin.start()
    assert sorted(tocsin.processes()) == sorted(CHILDREN)


async def test_ctrl_c_stops_everything_in_order_too(tocsin: Tocsin) -> None:
    children = pids(tocsin)
    for _ in range(2):
        # As one Ctrl-C may arrive: from the terminal, and passed on by make.
        os.kill(tocsin.pid, signal.SIGINT)
    await until("it has stopped", lambda: not is_alive(tocsin.pid))
    assert await tocsin.stop() == 0
    assert not any(is_alive(pid) for pid in children)
    await tocsin.start()


async def test_a_second_signal_kills_what_does_not_end(tocsin: Tocsin) -> None:
    children = pids(tocsin)
    # A frozen worker does not hear that it should stop.
    tocsin.send("worker-1", signal.SIGSTOP)
    os.kill(tocsin.pid, signal.SIGTERM)
    await asyncio.sleep(1.2)  # a second signal within one second counts as an echo of the first
    assert is_alive(tocsin.pid)
    assert await tocsin.stop() == 130
    assert not any(is_alive(pid) for pid in children)
    await tocsin.start()


async def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, output = await run_up("--data-dir", str(tmp_path), "--port", str(port))
    assert (code, output) == (
        2, f"tocsin: port {port} is in use: choose another with --port, or --port 0 for a free one\n"
    )  # fmt: skip


async def test_a_wrong_setting_stops_the_start_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_ALLOWED_NETWORKS", "nonsense")
    code, output = await run_up("--data-dir", str(tmp_path / "data"), "--port", "0")
    assert code == 1
    # Every process that reads the setting refuses it; which of them ends first is not ours to say.
    assert re.search(r"(worker-\d|api) ended with exit code 2", output)
    assert "TOCSIN_ALLOWED_NETWORKS" in output
    assert "Traceback" not in output


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike those pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="tocsin-test-"))
    os.chown(folder, ORDINARY_USER, ORDINARY_USER)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="otherwise every other test shows it already")
async def test_an_ordinary_user_can_run_it(open_folder: Path) -> None:
    user = User(ORDINARY_USER, ORDINARY_USER)
    # The virtual environment may lie where only root can enter, which is not what is tried here.
    command = wrap((*UP, "--data-dir", str(open_folder / "data"), "--port", "0"), user=user, needs=[PYTHON])
    process = await asyncio.create_subprocess_exec(*command, cwd="/", stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        await asyncio.wait_for(process.stdout.readuntil(b"Tocsin is running"), START_SECONDS)
    except asyncio.IncompleteReadError as error:
        pytest.fail(f"it ended: {error.partial.decode()}")
    children = json.loads((open_folder / "data" / "processes.json").read_text())
    assert {Path(f"/proc/{child['pid']}").stat().st_uid for child in children} == {ORDINARY_USER}
    process.terminate()
    await asyncio.wait_for(process.stdout.read(), STOP_SECONDS)
    assert await process.wait() == 0
