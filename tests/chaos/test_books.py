"""The judge itself: a row is green only when nothing is wrong with the books."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from shared.domain.result import SlotKey
from tests.chaos.books import Books, Stored, run_twice
from tests.chaos.faults import Fault
from tests.chaos.installation import Installation
from tests.chaos.suite import judge

pytestmark = pytest.mark.chaos

MONITOR = UUID(int=1)
PATHS = {"/m/1": MONITOR}
BEGIN = 1_800_000_000_000


def stored(second: int, *, late_ms: int | None = 5, status: str = "up") -> Stored:
    slot = BEGIN + 1_000 * second
    started = None if late_ms is None else slot + late_ms
    return Stored(SlotKey(MONITOR, "default", slot), started, status, None, None)


GOOD = Books(BEGIN, BEGIN + 3_500, 3, (stored(1), stored(2), stored(3)), (), ())
MISSED = stored(2, late_ms=None, status="missed")


async def play(_: Installation) -> int:
    raise NotImplementedError


STRICT = Fault("strict", play, recovery=2, lateness=2, gap=1.5)


def test_whole_books_are_green() -> None:
    assert judge(STRICT, GOOD, BEGIN, []).problems == ()


@pytest.mark.parametrize(
    ("books", "problem"),
    [
        (replace(GOOD, unaccounted=(SlotKey(MONITOR, "eu", BEGIN + 1),)), "1 unaccounted"),
        (replace(GOOD, unscheduled=(SlotKey(MONITOR, "eu", BEGIN + 1),)), "1 not due"),
        (replace(GOOD, stored=(*GOOD.stored, stored(3))), "1 double results"),
        (replace(GOOD, stored=(stored(1), MISSED, stored(3))), "1 missed"),
        (replace(GOOD, stored=(stored(1), stored(2, status="down"), stored(3))), "1 false alarms"),
        (replace(GOOD, stored=(stored(1, late_ms=2_100), stored(2), stored(3))), "a check too late"),
        (replace(GOOD, stored=(stored(1), stored(2), stored(3, late_ms=1_500))), "recovery too slow"),
        (replace(GOOD, ends_ms=BEGIN + 10_000), "gap too long"),
    ],
)
def test_each_fault_in_the_books_turns_a_row_red(books: Books, problem: str) -> None:
    assert problem in judge(STRICT, books, BEGIN, []).problems


def test_missed_slots_are_allowed_only_where_the_row_says_so_and_are_listed() -> None:
    books = replace(GOOD, stored=(stored(1), MISSED, stored(3)))
    row = judge(replace(STRICT, missed=True, gap=None), books, BEGIN, [])
    assert row.problems == ()
    assert len(row.missed_slots) == row.missed == 1


def test_a_request_without_a_result_is_a_check_that_ran_twice() -> None:
    requests = [("/m/1", row.started_ms or 0) for row in GOOD.stored]
    assert run_twice(GOOD.run, requests, PATHS) == []
    again = ("/m/1", requests[1][1] + 300)
    assert run_twice(GOOD.run, [*requests, again], PATHS) == [again]
    assert judge(STRICT, GOOD, BEGIN, [again]).problems == ("1 run twice",)
