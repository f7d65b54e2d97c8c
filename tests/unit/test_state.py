"""Results in, status out: the whole table of what turns a monitor, and what must not."""

from __future__ import annotations

import pytest

from shared.domain.result import ResultStatus
from shared.domain.state import Judged, MonitorState, MonitorStatus, Thresholds, apply

LETTERS = {
    "U": ResultStatus.UP,
    "G": ResultStatus.DEGRADED,
    "D": ResultStatus.DOWN,
    "m": ResultStatus.MISSED,
}


def run(letters: str, thresholds: Thresholds) -> MonitorState:
    state = MonitorState()
    for slot, letter in enumerate(letters):
        state = apply(state, Judged(slot * 1000, LETTERS[letter]), thresholds)
    return state


@pytest.mark.parametrize(
    ("letters", "failure", "recovery", "status", "since_ms"),
    [
        ("", 1, 1, "pending", 0),
        ("U", 1, 1, "up", 0),
        ("D", 1, 1, "down", 0),
        ("G", 1, 1, "degraded", 0),
        ("UD", 1, 1, "down", 1000),
        ("UDDD", 1, 1, "down", 1000),
        ("UDU", 1, 1, "up", 2000),
        ("UG", 1, 1, "degraded", 1000),
        ("UDD", 3, 1, "up", 0),
        ("UDDD", 3, 1, "down", 3000),
        ("UDDUDD", 3, 1, "up", 0),
        ("DD", 3, 1, "pending", 0),
        ("DU", 1, 2, "down", 0),
        ("DUU", 1, 2, "up", 2000),
        ("DUDUU", 1, 2, "up", 4000),
        ("DGG", 1, 2, "degraded", 2000),
        ("m", 1, 1, "pending", 0),
        ("Umm", 1, 1, "up", 0),
        ("Dm", 1, 1, "down", 0),
        ("UDmDmD", 3, 1, "down", 5000),
    ],
)
def test_status_after(letters: str, failure: int, recovery: int, status: str, since_ms: int) -> None:
    state = run(letters, Thresholds(failure, recovery))
    assert (state.status, state.status_since_ms) == (MonitorStatus(status), since_ms)


def test_a_late_result_changes_nothing() -> None:
    state = run("UUU", Thresholds())
    for slot in (0, 1000, 2000):
        assert apply(state, Judged(slot, ResultStatus.DOWN), Thresholds()) is state
