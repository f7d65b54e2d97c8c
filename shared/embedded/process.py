"""Recognise and end a server that a killed run left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from shared.embedded.errors import EmbeddedServerError
from shared.embedded.waiting import wait_until

_PATIENCE_SECONDS = 10.0


def read_pid(file: Path) -> int | None:
    """The number in the first line of ``file``; None when there is no such file or no number in it."""
    try:
        return int(file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def is_serving(pid: int, program: str, path: Path) -> bool:
    """Whether ``pid`` runs ``program`` with ``path`` on its command line.

    That line can be read whoever the process belongs to, unlike its working directory.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"/" + os.fsencode(program)) and os.fsencode(path) in words


async def end_orphan(pid: int, program: str, path: Path, signals: Sequence[signal.Signals]) -> None:
    """Stop the process if it is still ``program`` serving ``path``, sending one signal after the other.

    Raises ``EmbeddedServerError`` when it outlives them all.
    """
    for stop in signals:
        if not is_serving(pid, program, path):
            return
        os.kill(pid, stop)
        if await _gone(pid, program, path):
            return
    raise EmbeddedServerError(f"{program} of an earlier run (pid {pid}) does not stop: end it by hand")


async def _gone(pid: int, program: str, path: Path) -> bool:
    async def gone() -> bool:
        return not is_serving(pid, program, path)

    try:
        await asyncio.wait_for(wait_until(gone), _PATIENCE_SECONDS)
        return True
    except TimeoutError:
        return False
