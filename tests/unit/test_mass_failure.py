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
    has_passed,
    judge,
    suspect,
)


def beats(*counts: tuple[int, int]) -> list[Beat]:
    """(turned, well) from beat 0 on."""
    return [Beat(place * BEAT_MS, turned, well) for place, (turned, well) in enumerate(counts)]


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
    ("well", "affected", "failing", "expected"),
    [(0, 100, 100, False), (0, 100, 50, True), (70, 30, 30, True), (40, 30, 30, False), (0, 0, 0, True)],
    ids=["all fail", "half recovered", "most is well", "some is well", "nothing is left"],
)
def test_when_a_mass_failure_is_over(well: int, affected: int, failing: int, *, expected: bool) -> None:
    assert has_passed(beats((0, well)), affected, failing) is expected


def test_what_was_well_before_the_last_failure_does_not_end_it() -> None:
    assert not has_passed(beats((0, 200), (40, 10), (35, 12)), 75, 75)
    assert has_passed(beats((40, 10), (0, 90), (0, 90)), 75, 75)
