"""Reads Compose files as far as ours need it: variables of the environment, anchors, one file on top of another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.operations.dockerfile import REPOSITORY

# ${NAME}, ${NAME:-default} or ${NAME:?what to do}
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def read(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """A Compose file with its variables put in; raises ``KeyError`` for one that has neither value nor default."""

    def value(found: re.Match[str]) -> str:
        word, kind, default = found.groups()
        return environment.get(word, default) if kind == "-" else environment[word]

    text = (REPOSITORY / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    loaded: dict[str, Any] = yaml.safe_load(VARIABLE.sub(value, "\n".join(lines)))
    return loaded


def required(name: str) -> set[str]:
    """The variables without which the file can't be used."""
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    return {word for word, kind, _ in VARIABLE.findall(text) if kind != "-"}
