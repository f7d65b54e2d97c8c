"""Log lines as a person reads them."""

from __future__ import annotations

import json

import pytest

from cli.log_line import readable


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (json.dumps({"event": "ready", "process": "api"}), "ready"),
        (json.dumps({"event": "the process ends", "reason": "no servers"}), "the process ends: no servers"),
        (
            json.dumps({"event": "fault", "exception": "Traceback:\n  File …\nImportError: no name"}),
            "fault: ImportError: no name",
        ),
        ("LOG:  database system is ready", "LOG:  database system is ready"),
        ("", ""),
        ("[1, 2]", "[1, 2]"),
        ('{"level": "info"}', '{"level": "info"}'),
        ("7", "7"),
    ],
)
def test_the_event_and_its_cause_are_shown(line: str, shown: str) -> None:
    assert readable(line) == shown


@pytest.mark.parametrize("line", ["x" * 1000, json.dumps({"event": "x" * 1000})])
def test_a_line_is_bounded(line: str) -> None:
    assert len(readable(line)) == 300
