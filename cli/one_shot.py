"""A child that does one thing and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.child_log import ChildLog
from cli.supervisor import ChildFailedError
from shared.embedded.exec_child import wrap


async def run_to_end(name: str, command: Sequence[str], environment: Mapping[str, str], logs: Path) -> str:
    """What the command prints; its stderr goes to ``NAME.log``. Raises ``ChildFailedError`` when it fails."""
    log = ChildLog(logs / f"{name}.log")
    with log.open() as errors:
        process = await asyncio.create_subprocess_exec(
            *wrap(command),
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise ChildFailedError(name, f"ended with exit code {process.returncode}", log.last_lines(), log.path)
    return output.decode()
