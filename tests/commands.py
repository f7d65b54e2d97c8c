"""Commands that end by themselves, as a person calls them."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from typing import Any


async def run(*command: str, within: float = 120.0, **options: Any) -> tuple[int, str]:
    """The exit code of a command and what it wrote; who stops waiting for it ends it.

    ``options`` are those of ``asyncio.create_subprocess_exec``.
    """
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, **options)
    try:
        async with asyncio.timeout(within):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
