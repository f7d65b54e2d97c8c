"""Ending a task whose cancellation was swallowed on the way."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether the running task has been asked to end; to be asked in every loop that talks to NATS.

    The exception alone does not do: the client catches it while it flushes, and ``asyncio.wait_for`` of
    Python 3.11, through which every request goes, drops it when the answer has arrived at the same moment.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
