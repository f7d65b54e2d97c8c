"""What the watchdog says of what it sees: a table of looks, and the two that need a memory."""

from __future__ import annotations

from typing import Any

import pytest

from shared.domain.watchdog import Depth, Memory, Reader, Sight, judge

NOW = 1_800_000_000_000


def sight(**changes: Any) -> Sight:
    """A healthy installation, with changes."""
    healthy: dict[str, Any] = {
        "now_ms": NOW,
        "planned_until_ms": NOW - 400,
        "beat_ms": NOW - 3_000,
        "streams": {"CHECKS": Depth(5, NOW - 500), "RESULTS": Depth(2, NOW - 300)},
        "readers": {"default": Reader(0, 100)},
        "active_monitors": 10,
    }
    return Sight(**{**healthy, **changes})


def alarms(*sights: Sight) -> dict[str, str]:
    memory = Memory()
    verdicts: dict[str, str | None] = {}
    for each in sights:
        verdicts = judge(each, memory)
    return {part: problem for part, problem in verdicts.items() if problem}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"planned_until_ms": NOW - 9_000}, {"dispatch": "no scheduler has dispatched for 9 s"}),
        ({"planned_until_ms": NOW + 4_000}, {}),
        ({"planned_until_ms": NOW + 3_600_000},
         {"dispatch": "a scheduler reports a time that is 3600 s ahead: one of the clocks is wrong"}),
        ({"planned_until_ms": None}, {"dispatch": "no scheduler has ever reported"}),
        ({"planned_until_ms": None, "active_monitors": 0}, {}),
        ({"beat_ms": NOW - 16_000}, {"beat": "the queue's own beat is 16 s old"}),
        ({"beat_ms": None}, {}),
        ({"streams": {"RESULTS": Depth(7, NOW - 31_000)}},
         {"results": "7 batches of results are not stored, the oldest for 31 s"}),
        ({"streams": {"RESULTS": Depth(0, None)}}, {}),
        ({"streams": {"TASKS": Depth(4, NOW - 61_000)}},
         {"tasks": "4 tasks, such as notifications, are not taken by any worker, the oldest for 61 s"}),
        ({"streams": {"TASKS": Depth(4, NOW - 59_000)}}, {}),
        ({"readers": {"eu": None, "us": Reader()}}, {"workers": "no worker has ever served eu"}),
        ({"blind_monitors": 3}, {"monitors": "3 of 10 monitors have had no verdict for three intervals"}),
    ],
)  # fmt: skip
def test_one_look(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert alarms(sight(**changes)) == expected


@pytest.mark.parametrize(
    ("later_ms", "seen_before", "is_alarm"),
    [(14_000, False, False), (16_000, False, True), (5_000, True, True)],
    ids=["just started", "never came", "is gone"],
)
def test_a_beat_that_is_not_there(later_ms: int, *, seen_before: bool, is_alarm: bool) -> None:
    first = sight(beat_ms=NOW - 3_000 if seen_before else None)
    found = alarms(first, sight(now_ms=NOW + later_ms, planned_until_ms=NOW + later_ms, beat_ms=None))
    assert found.get("beat") == ("the queue's own beat is not there" if is_alarm else None)


def test_workers_that_take_nothing_while_checks_wait_are_deaf_after_a_while() -> None:
    looks = [sight(now_ms=NOW + step * 5_000, readers={"eu": Reader(40, 100)}) for step in range(5)]
    for look in looks:
        object.__setattr__(look, "planned_until_ms", look.now_ms)
        object.__setattr__(look, "beat_ms", look.now_ms)
    assert alarms(*looks[:3]) == {}
    assert alarms(*looks) == {"workers": "checks wait and no worker takes them in eu"}


def test_checks_that_come_back_and_are_not_settled_mean_deafness_too() -> None:
    looks = [sight(now_ms=NOW + step * 5_000, readers={"eu": Reader(0, 100 + step, 5)}) for step in range(5)]
    assert "checks wait and no worker takes them in eu" in alarms(*looks)["workers"]


def test_checks_that_come_back_and_are_taken_by_another_worker_do_not() -> None:
    looks = [sight(now_ms=NOW + step * 5_000, readers={"eu": Reader(0, 100, 5 - step)}) for step in range(5)]
    assert "workers" not in alarms(*looks)


def test_a_long_queue_that_moves_is_not_deafness() -> None:
    looks = [sight(readers={"eu": Reader(40, 100 + step)}) for step in range(9)]
    assert alarms(*looks) == {}
