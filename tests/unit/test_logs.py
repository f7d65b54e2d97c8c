"""The end of each log that a failed test wrote is shown, and of no other."""

from __future__ import annotations

import os
from pathlib import Path

from tests.logs import FILES, LINES, tails


def write(path: Path, text: str, changed_ms: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(changed_ms * 1_000_000,) * 2)


def test_the_newest_logs_are_shown_from_their_end(tmp_path: Path) -> None:
    write(tmp_path / "test0" / "data" / "logs" / "api.log", "first\n" + "line\n" * LINES, 2_000)
    write(tmp_path / "jobs0" / "worker-1.log", "listening\n", 3_000)
    write(tmp_path / "test0" / "data.out", "", 4_000)
    write(tmp_path / "before0" / "nats.log", "of a test before\n", 1_999)
    write(tmp_path / "test0" / "rows.txt", "no log\n", 5_000)
    (tmp_path / "jobscurrent").symlink_to(tmp_path / "jobs0")
    assert list(tails(tmp_path, 2_000)) == [
        ("jobs0/worker-1.log", "listening"),
        ("test0/data/logs/api.log", "\n".join(["line"] * LINES)),
    ]


def test_a_crowd_of_logs_is_bounded(tmp_path: Path) -> None:
    for number in range(FILES + 3):
        write(tmp_path / f"{number}.log", "line", number)
    assert [name for name, _ in tails(tmp_path, 0)] == [f"{number}.log" for number in range(FILES + 2, 2, -1)]
