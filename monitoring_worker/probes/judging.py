"""Judging that may take long, on threads of its own: the event loop belongs to all checks of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from shared.http.errors import OverloadedError

T = TypeVar("T")

THREADS = 4
PATIENCE = 10.0
"""Seconds after which a judgement is given up: longer than the effort takes that an answer may cost."""

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="judging")


async def beside_the_loop(judge: Callable[[], T]) -> T:
    """Run on a thread; raises ``OverloadedError`` when that takes too long, and what ``judge`` raises."""
    judgement = asyncio.get_running_loop().run_in_executor(_threads, copy_context().run, judge)
    try:
        async with asyncio.timeout(PATIENCE):
            return await judgement
    except TimeoutError:
        raise OverloadedError(f"an answer was not judged within {PATIENCE:g} s") from None
