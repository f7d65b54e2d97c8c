"""The log file of one child: it writes there itself, so that it never waits for its supervisor to read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO

MAX_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 16 * 1024


class ChildLog:
    """``NAME.log`` and, once that grows past 10 MB, its predecessor ``NAME.log.1``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._life_began_at = 0

    @property
    def path(self) -> Path:
        return self._path

    def open(self) -> IO[bytes]:
        """The file for the next life of the child, to append to."""
        self.rotate()
        file = self._path.open("ab")
        self._life_began_at = file.tell()
        return file

    def rotate(self) -> None:
        """Keep the file bounded also while the child has it open: copy, then empty it in place.

        Lines written in between are lost, which a bounded log is allowed to.
        """
        if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
            shutil.copyfile(self._path, self._path.with_name(f"{self._path.name}.1"))
            with self._path.open("r+b") as file:
                file.truncate(0)
            self._life_began_at = 0

    def last_lines(self, count: int = 10) -> list[str]:
        """The end of what the child wrote in its last life."""
        with self._path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(self._life_began_at, end - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-count:]
