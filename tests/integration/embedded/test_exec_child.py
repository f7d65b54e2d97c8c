"""The helper that a child starts through: its user, its capabilities, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared.embedded.exec_child import CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, EXIT_REFUSED, User, wrap
from tests.integration.embedded.processes import eventually, is_alive, status_field

NOBODY = User(65534, 65534)
SHOW_STATUS = ("/bin/cat", "/proc/self/status")
PR_CAPBSET_DROP = 24

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run(*command: str, groups: Sequence[int] | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, extra_groups=groups).stdout


def capabilities(status: str) -> dict[str, int]:
    return {name: int(status_field(status, f"Cap{name}"), 16) for name in ("Prm", "Eff", "Inh", "Amb")}


@as_root
def test_root_becomes_the_user_for_good_and_without_any_capability(tmp_path: Path) -> None:
    status = run(*wrap(SHOW_STATUS, user=NOBODY), groups=[42])
    assert status_field(status, "Uid").split() == ["65534"] * 4
    assert status_field(status, "Gid").split() == ["65534"] * 4
    assert status_field(status, "Groups") == ""
    assert set(capabilities(status).values()) == {0}


@as_root
def test_a_closed_folder_on_the_way_costs_one_capability_and_stays_closed(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    status = run(*wrap(SHOW_STATUS, user=NOBODY, needs=[inner]))
    assert set(capabilities(status).values()) == {1 << CAP_DAC_READ_SEARCH}
    assert inner.parent.stat().st_mode & 0o777 == 0o700


@as_root
def test_where_the_smaller_capability_is_forbidden_the_larger_one_serves(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = (
        "import ctypes, os, sys\n"
        f"assert ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_DAC_READ_SEARCH}, 0, 0, 0) == 0\n"
        "from shared.embedded.exec_child import User, wrap\n"
        f"command = wrap({SHOW_STATUS!r}, user=User(65534, 65534), needs=[{str(tmp_path)!r}])\n"
        # The child's parent has to be the process that built the command: run it, do not become it.
        "import subprocess; sys.exit(subprocess.run(command).returncode)\n"
    )
    status = run(sys.executable, "-c", program)
    assert set(capabilities(status).values()) == {1 << CAP_DAC_OVERRIDE}


@as_root
def test_a_program_that_asks_access_can_pass_the_closed_folder_too(tmp_path: Path) -> None:
    """PostgreSQL looks for its own program with access(2), which by default ignores such capabilities."""
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o755)
    tmp_path.chmod(0o700)
    ask = f"import os; print(os.access({str(inner)!r}, os.X_OK))"
    assert run(*wrap((sys.executable, "-c", ask), user=NOBODY, needs=[inner])) == "True\n"


async def test_the_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import subprocess, time\n"
        "from shared.embedded.exec_child import wrap\n"
        "child = subprocess.Popen(wrap(('/bin/sleep', '60')))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    await eventually(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"/bin/sleep"))
    assert is_alive(child)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not is_alive(child))


@as_root
async def test_the_change_of_user_does_not_lose_the_end_with_the_parent() -> None:
    status = await asyncio.create_subprocess_exec(
        *wrap((sys.executable, "-c", PRINT_DEATH_SIGNAL), user=NOBODY, death_signal=signal.SIGINT),
        stdout=subprocess.PIPE,
    )
    output, _ = await status.communicate()
    assert int(output) == signal.SIGINT


PRINT_DEATH_SIGNAL = (
    "import ctypes; number = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(number)); print(number.value)"
)


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    command = list(wrap(("/bin/echo", "started")))
    command[4] = "1"
    answer = subprocess.run(command, capture_output=True, check=False)
    assert answer.returncode == EXIT_REFUSED
    assert answer.stdout == b""


def test_a_program_that_is_not_there_is_named_in_one_line() -> None:
    answer = subprocess.run(wrap(("/nowhere/program",)), capture_output=True, text=True, check=False)
    assert answer.returncode == EXIT_REFUSED
    assert answer.stderr == "cannot run /nowhere/program: [Errno 2] No such file or directory\n"
