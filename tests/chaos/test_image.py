"""The Dockerfile's steps, all of them, played in a clean directory with the package index."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.operations.dockerfile import REPOSITORY, Player, stages

pytestmark = pytest.mark.whole


def test_the_steps_make_an_installation_that_runs_and_has_no_tools_in_it(tmp_path: Path) -> None:
    build, final = stages((REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))
    inherited = {name: value for name, value in os.environ.items() if "PIP" in name or "PROXY" in name.upper()}
    try:
        Player(build, tmp_path, {**inherited, "HOME": str(tmp_path)}).play()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd[-1]}\n{error.stdout}\n{error.stderr}")
    programs = tmp_path / "opt" / "tocsin" / "bin"
    environment = {**final.environment(), "PATH": str(programs)}
    for words, code, said in ((["--version"], 0, "tocsin "), (["worker"], 2, "TOCSIN_SECRET_KEYS")):
        ended = subprocess.run(
            [str(programs / "tocsin"), *words], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stderr
        assert said in ended.stdout + ended.stderr
    assert not {program.name for program in programs.iterdir()} & {"pip", "pip3", "pytest", "hatchling", "gcc"}
