"""Results in, status out: the whole table of what turns a monitor, and what must not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shared.domain.result import ResultStatus
from shared.domain.state import (
    Judged,
    MonitorState,
    MonitorStatus,
    RegionState,
    Rules,
    Thresholds,
    apply,
    forget_counts,
)

LETTERS = {
    "U": ResultStatus.UP,
    "G": ResultStatus.DEGRADED,
    "D": ResultStatus.DOWN,
    "m": ResultStatus.MISSED,
}
INTERVAL_MS = 1000


def rules(failure: int = 1, recovery: int = 1, regions: str = "a", quorum: int | None = None) -> Rules:
    return Rules(Thresholds(failure, recovery), tuple(regions), quorum, INTERVAL_MS)


def run(letters: str, rules: Rules, state: MonitorState | None = None, region: str = "a") -> MonitorState:
    """One result per interval, from the one on that follows the last."""
    state = state or MonitorState()
    first = state.last_slot_ms // INTERVAL_MS + 1
    for slot, letter in enumerate(letters, first):
        state = apply(state, Judged(slot * INTERVAL_MS, LETTERS[letter], region), rules)
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
        ("UDDD", 3, 1, "down", 1000),
        ("UDDUDD", 3, 1, "up", 0),
        ("DD", 3, 1, "pending", 0),
        ("DU", 1, 2, "down", 0),
        ("DUU", 1, 2, "up", 1000),
        ("DUDUU", 1, 2, "up", 3000),
        ("DGG", 1, 2, "degraded", 1000),
        ("DUG", 1, 2, "degraded", 2000),
        ("m", 1, 1, "pending", 0),
        ("Umm", 1, 1, "up", 0),
        ("Dm", 1, 1, "down", 0),
        ("UDmDmD", 3, 1, "down", 1000),
    ],
)
def test_status_after(letters: str, failure: int, recovery: int, status: str, since_ms: int) -> None:
    state = run(letters, rules(failure, recovery))
    assert (state.status, state.status_since_ms) == (MonitorStatus(status), since_ms)


def test_a_late_result_changes_nothing() -> None:
    state = run("UUU", rules())
    for slot in (0, 1000, 2000):
        assert apply(state, Judged(slot, ResultStatus.DOWN, "a"), rules()) is state


def test_a_region_that_the_monitor_no_longer_has_says_nothing() -> None:
    state = run("U", rules(regions="ab"))
    assert apply(state, Judged(9000, ResultStatus.DOWN, "c"), rules(regions="ab")) is state
    after = apply(run("D", rules(regions="ab"), region="b"), Judged(0, ResultStatus.UP, "a"), rules(regions="a"))
    assert (after.status, set(after.regions)) == (MonitorStatus.UP, {"a"})


# Each word is one slot, with a letter for each of the regions a, b and c; "." is a region that says nothing.
@pytest.mark.parametrize(
    ("slots", "quorum", "status"),
    [
        ("D..", None, "pending"),
        ("DD.", None, "down"),
        ("D.. D..", None, "down"),
        ("U.. ", None, "pending"),
        ("UU.", None, "up"),
        ("UUU DUU", None, "up"),
        ("UUU DDU", None, "down"),
        ("UUU DDU", 3, "up"),
        ("UUU DDD", 3, "down"),
        ("UUU DUU", 1, "down"),
        ("UUU GGU", None, "degraded"),
        ("UUU DGU", None, "degraded"),
        ("UUU GUU", None, "up"),
        ("UUU D.. D.. D..", None, "up"),
        ("UUU D.. D.. D.. D..", None, "down"),
        ("UUU DD. DD. DD. DD.", 3, "down"),
    ],
)
def test_regions_decide_by_quorum_among_those_that_see(slots: str, quorum: int | None, status: str) -> None:
    state, judging = MonitorState(), rules(regions="abc", quorum=quorum)
    for slot, word in enumerate(slots.split()):
        for region, letter in zip("abc", word, strict=True):
            if letter != ".":
                state = apply(state, Judged(slot * INTERVAL_MS, LETTERS[letter], region), judging)
    assert state.status is MonitorStatus(status)


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("U", "U", "up"),
        ("U", "D", "unknown"),
        ("U", "DD", "down"),
        ("D", "D", "down"),
        ("DD", "D", "down"),
        ("DD", "U", "unknown"),
        ("DD", "UU", "up"),
        ("", "U", "up"),
        ("", "D", "unknown"),
    ],
)
def test_after_not_knowing_a_verdict_has_to_agree_with_its_threshold(before: str, after: str, status: str) -> None:
    judging = rules(failure=2, recovery=2)
    state = replace(run(before, judging), status=MonitorStatus.UNKNOWN, status_since_ms=90_000)
    for slot, letter in enumerate(after):
        state = apply(state, Judged(100_000 + slot * INTERVAL_MS, LETTERS[letter], "a"), judging)
    assert state.status is MonitorStatus(status)


def test_a_changed_check_is_counted_anew_and_keeps_its_status_and_slots() -> None:
    state = forget_counts(run("UDD", rules(failure=3)))
    assert (state.status, state.last_slot_ms, state.consecutive_failures) == (MonitorStatus.UP, 2000, 0)
    assert run("D", rules(failure=3), state).status is MonitorStatus.UP
    assert run("DDD", rules(failure=3), state).status_since_ms == 3000


def reference(results: dict[int, ResultStatus], failure: int, recovery: int) -> MonitorStatus:
    """What one region's results mean when they are read in order, by the book."""
    status, failures, successes = MonitorStatus.PENDING, 0, 0
    for _, result in sorted(results.items()):
        if result is ResultStatus.MISSED:
            continue
        if result is ResultStatus.DOWN:
            failures, successes = failures + 1, 0
            if failures >= failure:
                status = MonitorStatus.DOWN
        else:
            failures, successes = 0, successes + 1
            if status is not MonitorStatus.DOWN or successes >= recovery:
                status = MonitorStatus(result.value)
    return status


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_hold_the_invariants(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    failure, recovery = chance.randint(1, 3), chance.randint(1, 3)
    judging = rules(failure, recovery)
    sent = [(slot, chance.choice(list(ResultStatus))) for slot in range(0, 40 * INTERVAL_MS, INTERVAL_MS)]
    noisy = sent + chance.choices(sent, k=20)  # duplicates, late ones among them
    for index in range(0, len(noisy) - 1, 3):
        noisy[index], noisy[index + 1] = noisy[index + 1], noisy[index]
    state, applied = MonitorState(), dict[int, ResultStatus]()
    for slot, status in noisy:
        before = state
        state = apply(state, Judged(slot, status, "a"), judging)
        if slot <= before.last_slot_ms or status is ResultStatus.MISSED:
            assert state is before
            continue
        applied[slot] = status
        assert state.last_slot_ms == slot
        assert state.status_since_ms >= before.status_since_ms
        assert (state.consecutive_failures > 0) == (status is ResultStatus.DOWN)
        if state.status is not before.status:
            assert state.status is not MonitorStatus.UNKNOWN
            assert (state.status is MonitorStatus.DOWN) == (status is ResultStatus.DOWN)
    assert state.status is reference(applied, failure, recovery)


@pytest.mark.parametrize("seed", range(30))
def test_regions_in_any_order_of_arrival_end_alike(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    judging = rules(regions="abc", quorum=chance.choice([None, 1, 2, 3]))
    sent = {region: [chance.choice("UGD") for _ in range(8)] for region in "abc"}
    ends = set()
    for _ in range(4):
        state, queues = MonitorState(), {region: list(letters) for region, letters in sent.items()}
        for slot in range(8):
            for region in chance.sample("abc", 3):
                letter = queues[region].pop(0)
                state = apply(state, Judged(slot * INTERVAL_MS, LETTERS[letter], region), judging)
        ends.add(state.status)
    assert len(ends) == 1


def test_the_summary_of_the_regions() -> None:
    regions = {"a": RegionState(5, failures=2), "b": RegionState(9, successes=4)}
    state = MonitorState(regions=regions)
    assert (state.last_slot_ms, state.consecutive_failures, state.consecutive_successes) == (9, 2, 0)
    assert (MonitorState().last_slot_ms, MonitorState().consecutive_failures) == (-1, 0)
