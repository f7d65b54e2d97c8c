"""When many failures say more about a worker than about their targets."""

from __future__ import annotations

import random

import pytest

from shared.domain.mass_failure import (
    BEAT_MS,
    HOLD_MS,
    LEAST,
    LONGEST_HOLD_MS,
    Beat,
    Ruling,
    Suspect,
    beat_of,
    has_passed,
    judge,
    suspect,
)


def beats(*counts: tuple[int, ...]) -> list[Beat]:
    """(turned, well, failing) from beat 0 on."""
    return [Beat(place * BEAT_MS, *each) for place, each in enumerate(counts)]


LATER = HOLD_MS + 1


@pytest.mark.parametrize(
    ("counts", "failed_in", "held_ms", "expected"),
    [
        ([(0, 40), (1, 39), (0, 40)], 1, 0, Ruling.RELEASE),
        ([(0, 40), (1, 39)], 1, 0, Ruling.HOLD),
        ([(0, 40), (1, 39)], 1, LATER, Ruling.RELEASE),
        ([(1, 0)], 0, 0, Ruling.HOLD),
        ([(1, 0)], 0, LATER, Ruling.RELEASE),
        ([(0, 40), (20, 20), (40, 0)], 1, 0, Ruling.HOLD),
        ([(0, 40), (20, 20), (40, 0)], 1, LATER, Ruling.MASS),
        ([(30, 970)], 0, LATER, Ruling.RELEASE),
        ([(500, 500)], 0, LATER, Ruling.MASS),
        ([(11, 10)], 0, LATER, Ruling.RELEASE),
        ([(40, 20)], 0, LATER, Ruling.MASS),
        ([(9, 0)], 0, LONGEST_HOLD_MS - 1, Ruling.HOLD),
        ([(9, 0)], 0, LONGEST_HOLD_MS, Ruling.RELEASE),
        ([(2, 0)], 0, LATER, Ruling.RELEASE),
        ([(5, 0), (0, 0), (5, 0)], 2, LATER, Ruling.MASS),
        ([(5, 0), (0, 9), (5, 0)], 2, LATER, Ruling.HOLD),
        ([], 0, LATER, Ruling.RELEASE),
    ],
    ids=[
        "the world was seen since",
        "nothing was seen since",
        "most of the same beat was well",
        "alone, at once",
        "alone, later",
        "a worker goes blind, at once",
        "a worker goes blind, later",
        "3 % of one beat",
        "half of one beat",
        "a third that was looked at first",
        "two thirds",
        "few and nothing well",
        "few for too long",
        "too few",
        "a run of failures",
        "a run that was broken",
        "no evidence",
    ],
)
def test_rulings(counts: list[tuple[int, int]], failed_in: int, held_ms: int, expected: Ruling) -> None:
    assert judge(beats(*counts), failed_in * BEAT_MS + 7, held_ms) is expected


@pytest.mark.parametrize("seed", range(50))
def test_rulings_hold_their_promises_for_random_evidence(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        seen = beats(*((chance.randint(0, 8), chance.randint(0, 8)) for _ in range(chance.randint(1, 12))))
        failed_at, held_ms = chance.choice(seen).at_ms, chance.choice([0, HOLD_MS, LONGEST_HOLD_MS])
        ruling = judge(seen, failed_at, held_ms)
        turned, well = sum(beat.turned for beat in seen), sum(beat.well for beat in seen)
        if ruling is Ruling.MASS:
            assert turned >= LEAST
            assert held_ms >= HOLD_MS
        if held_ms >= LONGEST_HOLD_MS:
            assert ruling is not Ruling.HOLD
        if not well and turned >= LEAST and held_ms >= HOLD_MS:
            assert ruling is Ruling.MASS
        if not turned and well and seen[-1].at_ms > failed_at:
            assert ruling is not Ruling.MASS


def looks(chance: random.Random, failing: int, interval_ms: int) -> list[tuple[int, bool]]:
    """When each of 90 monitors is looked at first since some of them fail, and whether it is one of those."""
    return sorted((chance.randrange(interval_ms), number < failing) for number in range(90))


def is_blamed(first_looks: list[tuple[int, bool]], interval_ms: int) -> bool:
    """Whether sweeps, four a second, blame the worker for one of the failures."""
    well = [at_ms + shift for at_ms, fails in first_looks if not fails for shift in (-interval_ms, 0, interval_ms)]
    counts: dict[int, list[int]] = {}
    for at_ms in well:
        counts.setdefault(beat_of(at_ms), [0, 0])[1] += 1
    for at_ms, fails in first_looks:
        counts.setdefault(beat_of(at_ms), [0, 0])[0] += fails
    seen = [Beat(at_ms, *counts[at_ms]) for at_ms in sorted(counts)]
    return any(final_ruling(seen, at_ms) is Ruling.MASS for at_ms, fails in first_looks if fails)


def final_ruling(seen: list[Beat], failed_at: int) -> Ruling:
    rulings = (
        judge([beat for beat in seen if beat.at_ms <= failed_at + held_ms], failed_at, held_ms)
        for held_ms in range(0, LONGEST_HOLD_MS + 1, 250)
    )
    return next(ruling for ruling in rulings if ruling is not Ruling.HOLD)


@pytest.mark.parametrize("interval_ms", [5_000, 20_000, 60_000])
def test_a_third_that_really_fails_is_not_blamed_on_the_worker_and_nearly_all_are(interval_ms: int) -> None:
    blamed = {
        failing: sum(is_blamed(looks(random.Random(seed), failing, interval_ms), interval_ms) for seed in range(40))
        for failing in (30, 85)
    }
    assert blamed == {30: 0, 85: 40}


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ({"a": [(20, 0)]}, "a"),
        ({"a": [(20, 0)], "b": [(15, 0)]}, ""),
        ({"a": [(20, 0)], "b": [(1, 15)]}, "a"),
        ({"a": [(20, 0)], "b": [(0, 15)]}, "a"),
        ({"a": [(20, 0)], "b": []}, "a"),
    ],
    ids=["alone", "both fail", "the other sees", "the other is well", "the other is idle"],
)
def test_the_region_is_suspected_when_all_of_its_workers_fail(
    workers: dict[str, list[tuple[int, int]]], expected: str
) -> None:
    seen = {name: beats(*counts) for name, counts in workers.items()}
    assert suspect("a", "eu", seen, 0) == Suspect(expected, "eu")


@pytest.mark.parametrize(
    ("well", "failing", "affected", "still_failing", "expected"),
    [
        (0, 100, 100, 100, False),
        (0, 0, 100, 50, True),
        (70, 30, 30, 30, True),
        (40, 30, 30, 30, False),
        (500, 500, 500, 500, False),
        (10, 0, 100, 100, True),
        (9, 0, 100, 100, False),
        (0, 0, 0, 0, True),
    ],
    ids=[
        "all fail",
        "half recovered",
        "most is well",
        "some is well",
        "half is well",
        "few looks, all well",
        "too few looks",
        "nothing is left",
    ],
)
def test_when_a_mass_failure_is_over(
    well: int, failing: int, affected: int, still_failing: int, *, expected: bool
) -> None:
    assert has_passed(beats((0, well, failing)), affected, still_failing) is expected


def test_what_was_well_before_the_last_failure_does_not_end_it() -> None:
    assert not has_passed(beats((0, 200), (40, 10), (35, 12)), 75, 75)
    assert not has_passed(beats((40, 10), (0, 90, 75), (0, 90, 75)), 75, 75)
    assert has_passed(beats((40, 10), (0, 90, 20), (0, 90, 20)), 75, 75)
