"""Parents: what explains a child's failure, how long it waits for that, and circles."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from uuid import UUID

import pytest

from shared.domain.dependency import Parent, cycle_from, explanation, judge
from shared.domain.mass_failure import Ruling
from shared.domain.state import MonitorStatus

FAILED_AT = 10_000
WELL = Parent(20_000, MonitorStatus.UP, None, last_slot_ms=FAILED_AT, consecutive_failures=0)
UNSEEN = replace(WELL, last_slot_ms=FAILED_AT - 1)
FAILING = replace(WELL, consecutive_failures=1)
UNKNOWN = replace(WELL, status=MonitorStatus.UNKNOWN)
IN_MAINTENANCE = replace(WELL, status=MonitorStatus.DOWN, overlay=MonitorStatus.MAINTENANCE)
SLOW = replace(UNSEEN, interval_ms=3_600_000)


@pytest.mark.parametrize(
    ("parents", "held_ms", "expected"),
    [
        ([], 0, Ruling.RELEASE),
        ([WELL], 0, Ruling.RELEASE),
        ([WELL, UNSEEN], 0, Ruling.HOLD),
        ([UNSEEN], 29_999, Ruling.HOLD),
        ([UNSEEN], 30_000, Ruling.RELEASE),
        ([FAILING], 0, Ruling.HOLD),
        ([UNKNOWN], 0, Ruling.HOLD),
        ([UNKNOWN], 30_000, Ruling.RELEASE),
        ([SLOW], 59_999, Ruling.HOLD),
        ([SLOW], 60_000, Ruling.RELEASE),
        ([IN_MAINTENANCE], 10**9, Ruling.HOLD),
    ],
)
def test_how_long_a_child_waits_for_its_parents(parents: list[Parent], held_ms: int, expected: Ruling) -> None:
    assert judge(parents, FAILED_AT, held_ms) is expected


def test_the_incident_of_a_parent_that_is_down_explains_its_child() -> None:
    assert explanation([WELL, UNSEEN]) is None
    assert explanation([WELL, replace(WELL, incident_id=UUID(int=5))]) == UUID(int=5)


A, B, C, D = (UUID(int=number) for number in range(4))


@pytest.mark.parametrize(
    ("parents_of", "expected"),
    [
        ({A: []}, None),
        ({A: [A]}, [A, A]),
        ({A: [B], B: [A]}, [A, B, A]),
        ({A: [B, C], B: [D], C: [D], D: []}, None),
        ({A: [B], B: [C], C: [D], D: [A]}, [A, B, C, D, A]),
        ({A: [B], B: [C], C: [B]}, None),
    ],
    ids=["alone", "itself", "two", "a diamond", "four", "a circle elsewhere"],
)
def test_the_way_back_to_a_monitor(parents_of: dict[UUID, list[UUID]], expected: list[UUID] | None) -> None:
    assert cycle_from(A, parents_of) == expected


@pytest.mark.parametrize("seed", range(30))
def test_circles_are_found_exactly_when_there_is_one(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    ids = [UUID(int=number) for number in range(12)]
    parents_of = {each: chance.sample(ids, chance.randint(0, 2)) for each in ids}
    reached, waiting = set[UUID](), list(parents_of[ids[0]])
    while waiting:
        if (each := waiting.pop()) not in reached:
            reached.add(each)
            waiting.extend(parents_of[each])
    found = cycle_from(ids[0], parents_of)
    assert (found is not None) == (ids[0] in reached)
    if found:
        assert all(after in parents_of[before] for before, after in itertools.pairwise(found))
