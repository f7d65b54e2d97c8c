"""Wait for something outside this process that can only be asked, never awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_POLL_SECONDS = 0.05


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once ``condition`` holds; it is asked again every 50 ms. The caller sets the deadline."""
    while True:
        if await condition():
            return
        await asyncio.sleep(_POLL_SECONDS)
