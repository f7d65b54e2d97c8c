"""The command ``tocsin`` itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = (sys.executable, "-m", "cli.main")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return subprocess.run(
        (*COMMAND, *words), env=inherited | environment, check=False, capture_output=True, text=True
    )


def test_it_says_its_version() -> None:
    answer = run("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith("tocsin 0.")


def test_its_help_lists_what_people_use_and_hides_the_rest() -> None:
    shown = run("--help").stdout
    for command in ("up", "api", "scheduler", "worker", "migrate", "check"):
        assert f"  {command} " in shown
    assert "bootstrap" not in shown


@pytest.mark.parametrize("command", ["api", "worker"])
def test_a_missing_setting_stops_a_process_with_one_line(command: str) -> None:
    answer = run(command)
    assert answer.returncode == 2
    assert answer.stderr.startswith("tocsin: TOCSIN_")
    assert answer.stderr.count("\n") == 1


def test_a_wrong_option_is_refused() -> None:
    assert run("up", "--port", "70000").returncode == 2
