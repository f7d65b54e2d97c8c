"""Helpers for tests of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from shared.embedded.waiting import wait_until


async def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for the condition; ``TimeoutError`` when it does not come true."""

    async def holds() -> bool:
        return condition()

    await asyncio.wait_for(wait_until(holds), seconds)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def status_field(status: str, name: str) -> str:
    """A field of ``/proc/PID/status``."""
    return next(line.split(":", 1)[1].strip() for line in status.splitlines() if line.startswith(f"{name}:"))
