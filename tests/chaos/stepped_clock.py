"""A process of ours whose machine has a clock that people set: SIGUSR1 puts it an hour ahead, SIGUSR2 an hour back.

``python -m tests.chaos.stepped_clock monitoring_worker.main`` runs that process as ever, apart from this.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from types import FrameType
from typing import Any

import shared.domain.clock  # noqa: F401 changed below
from shared.process import run_main

HOUR_NS = 3_600_000_000_000


class SteppedTime:
    """The module ``time``, with a wall clock that is off by ``offset_ns``."""

    def __init__(self) -> None:
        self.offset_ns = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.offset_ns

    def time(self) -> float:
        return self.time_ns() / 1e9

    def step(self, number: int, _frame: FrameType | None) -> None:
        self.offset_ns += HOUR_NS if number == signal.SIGUSR1 else -HOUR_NS

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


if __name__ == "__main__":
    stepped = SteppedTime()
    sys.modules["shared.domain.clock"].__dict__["time"] = stepped  # the one module that reads the machine's clocks
    for step_signal in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(step_signal, stepped.step)
    run_main(importlib.import_module(sys.argv[1]).main)
