"""Reads a Dockerfile, and plays its steps in a directory: no container engine runs where these tests do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and the instructions behind it: (word, arguments), in their order."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [arguments for step, arguments in self.steps if step == word]

    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for text in self.all("ENV") for pair in text.split())


def stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile. Comments are dropped, continued lines are joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found: list[Stage] = []
    for line in lines.replace("\\\n", " ").splitlines():
        word, _, arguments = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = arguments.partition(" AS ")
            found.append(Stage(base, name))
        elif word:
            found[-1].steps.append((word, arguments.strip()))
    return found


def sources(copy: str) -> list[str]:
    """What a COPY from the build context takes; nothing for one from another stage."""
    return [] if copy.startswith("--from") else copy.split()[:-1]


class Player:
    """Plays one stage: ``/`` of the container is ``root``, the build context is this repository."""

    def __init__(self, stage: Stage, root: Path, variables: Mapping[str, str]) -> None:
        self._stage, self._root, self._variables = stage, root, variables
        self._directory = root

    def play(self) -> None:
        """Raises ``CalledProcessError`` for a RUN that fails, ``OSError`` for a COPY that does."""
        for word, arguments in self._stage.steps:
            match word:
                case "WORKDIR":
                    self._directory = self._place(arguments)
                    self._directory.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(arguments)
                case "RUN":
                    self._run(arguments)

    def _copy(self, arguments: str) -> None:
        *names, target = arguments.split()
        for name in names:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, self._place(target), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self._place(target))

    def _run(self, script: str) -> None:
        script = re.sub(r"(?<![\w.])/(opt|build)\b", lambda found: f"{self._root}{found[0]}", script)
        variables = {
            **self._variables,
            **self._stage.environment(),
            "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        }
        subprocess.run(
            ["/bin/sh", "-euc", script],
            cwd=self._directory,
            env=variables,
            check=True,
            capture_output=True,
            text=True,
        )

    def _place(self, path: str) -> Path:
        return self._root / path.lstrip("/") if path.startswith("/") else self._directory / path
