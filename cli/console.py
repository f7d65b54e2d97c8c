"""Lines for the person at the terminal; plain text when there is none. No library: it is loaded all the time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from shared.domain.clock import Clock, to_datetime

_GREEN, _YELLOW, _RED, _BOLD, _RESET = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"


class Console:
    """Writes what ``tocsin up`` has to say. A reader who went away never stops what runs."""

    def __init__(self, stream: TextIO, clock: Clock, environment: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._clock = clock
        self._colours = stream.isatty() and "NO_COLOR" not in environment

    def done(self, text: str) -> None:
        self._print(f"{self._paint('✔', _GREEN)} {text}")

    def event(self, text: str) -> None:
        """Something that happened while running, with its time (UTC)."""
        moment = to_datetime(self._clock.now_ms()).strftime("%H:%M:%S")
        self._print(f"{moment} {self._paint(text, _YELLOW)}")

    def failure(self, text: str, details: Sequence[str] = ()) -> None:
        self._print(f"{self._paint('✘', _RED)} {text}")
        for line in details:
            self._print(f"    {line}")

    def block(self, title: str, facts: Sequence[tuple[str, str]], footer: str) -> None:
        width = max(len(name) for name, _ in facts) + 2
        lines = [f"  {name:<{width}}{text}" for name, text in facts]
        self._print("\n".join(["", self._paint(title, _BOLD), "", *lines, "", footer, ""]))

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours else text

    def _print(self, text: str) -> None:
        try:
            encoding = self._stream.encoding or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The terminal was closed. What has to be read later is in the log files.
            pass
