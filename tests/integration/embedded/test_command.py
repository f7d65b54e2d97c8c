"""The command ``tocsin`` itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.data_directory import DataDirectory
from cli.up import next_command

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


@pytest.mark.parametrize("command", ["up", "migrate", "check", "doctor", "jobs", "dead-letters"])
def test_its_help_says_in_one_whole_line_what_a_command_is_for(command: str) -> None:
    [line] = [line for line in run("--help").stdout.splitlines() if line.startswith(f"  {command} ")]
    assert line.endswith(".")
    assert not line.endswith("...")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("jobs", "list"), id="jobs"),
        pytest.param(("dead-letters", "list"), id="dead-letters"),
        pytest.param(("doctor", "--slots"), id="doctor --slots"),
    ],
)
def test_an_installation_that_was_stopped_is_named_with_its_mend(words: tuple[str, ...], tmp_path: Path) -> None:
    with DataDirectory.locked(tmp_path / "data") as directory:
        directory.secret_values()
        directory.postgres.mkdir()
        directory.nats.mkdir()
    answer = run(*words, "--data-dir", str(directory.root))
    assert answer.returncode == 2
    assert answer.stderr == (
        f"tocsin: nothing runs in {directory.root}: start tocsin up --data-dir {directory.root}\n"
    )


@pytest.mark.parametrize("command", ["api", "worker", "migrate"])
def test_a_missing_setting_stops_a_process_with_one_line(command: str) -> None:
    answer = run(command)
    assert answer.returncode == 2
    assert answer.stderr.startswith("tocsin: ")
    assert "TOCSIN_" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_wrong_option_is_refused() -> None:
    assert run("up", "--port", "70000").returncode == 2


def test_the_first_command_to_type_reads_the_key_where_there_is_one() -> None:
    assert '$(sed -n \'s/.*"api_key"' in next_command("http://a.test", ".tocsin/credentials.json")
    without = next_command("http://a.test", None)
    assert "Authorization: Bearer YOUR-API-KEY" in without
    assert "sed" not in without
