"""What the processes of a test that failed had to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.domain.clock import SystemClock

# A log lies at most so many folders below that of the run: test/data/logs/api.log.
DEPTH, FILES, LINES = 4, 12, 40
BEGAN_MS = pytest.StashKey[int]()


def begin(item: pytest.Item) -> None:
    item.stash[BEGAN_MS] = SystemClock().now_ms()


def add_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """Show, below a failure, the end of every log that was written to since the test began."""
    folder: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # it has no public name
    report.sections += [(f"Log {name}", text) for name, text in tails(folder, item.stash.get(BEGAN_MS, 0))]


def tails(folder: Path, since_ms: int) -> Iterator[tuple[str, str]]:
    """Name and last lines of the logs in ``folder`` that changed last, the newest first."""
    folder = folder.resolve()
    # Resolved, as pytest makes a second name for each folder.
    found = {
        (_changed_ns(path), path.resolve())
        for depth in range(DEPTH)
        for suffix in ("log", "out")
        for path in folder.glob("*/" * depth + f"*.{suffix}")
    }
    for changed_ns, path in sorted(found, reverse=True)[:FILES]:
        lines = path.read_text(errors="replace").splitlines()[-LINES:]
        if lines and changed_ns >= since_ms * 1_000_000:
            yield str(path.relative_to(folder)), "\n".join(lines)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # it went away meanwhile
