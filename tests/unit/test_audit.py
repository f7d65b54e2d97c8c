"""The audit counts what the scheduler plans: any difference between the two would cry wolf or hide a hole."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from shared.domain.audit import Period, Span, differences, expected, latest_spans, spans_since, suspects
from shared.domain.planner import plan
from shared.domain.result import SlotKey
from shared.domain.slots import Cadence

START = 1_800_000_000_000
ONE, TWO = UUID(int=1), UUID(int=2)
ids = st.integers(1, 9).map(lambda number: UUID(int=number))
moments = st.integers(START - 50_000, START + 400_000)
cadences = st.builds(Cadence, ids, st.sampled_from([5_000, 7_000, 60_000]), moments)


@given(cadences, st.none() | st.integers(0, 300_000), moments, moments)
def test_counting_slots_is_the_same_as_making_them(
    cadence: Cadence, length: int | None, after: int, until: int
) -> None:
    period = Period(cadence, ("eu",), None if length is None else cadence.starts_at_ms + length)
    assert period.count(after, until) == len(list(period.slots(after, until)))


@given(st.lists(cadences, unique_by=lambda cadence: cadence.monitor_id), moments, moments)
def test_what_the_planner_plans_is_what_the_audit_expects(found: list[Cadence], after: int, until: int) -> None:
    planned = {
        (due.cadence.monitor_id, slot)
        for due in plan(found, after, until)
        for slot in (*due.superseded_ms, due.slot_ms)
    }
    periods = [Period(cadence, ("eu",)) for cadence in found]
    spans = {cadence.monitor_id: Span(after, until) for cadence in found}
    missing, surplus = differences(periods, spans, [])
    assert {(key.monitor_id, key.slot_ms) for key in missing} == planned
    assert surplus == ()


def test_a_monitor_is_not_due_while_it_is_paused() -> None:
    first = Period(Cadence(ONE, 5_000, START), ("eu",), START + 60_000)
    second = Period(Cadence(ONE, 5_000, START + 120_000), ("eu",))
    assert first.count(START + 60_000 - 1, START + 120_000 - 1) == 0
    assert second.count(START + 60_000 - 1, START + 120_000 - 1) == 0
    assert second.count(START + 120_000 - 1, START + 120_000) == 1


def test_missing_and_surplus_slots_are_named() -> None:
    period = Period(Cadence(ONE, 10_000, START), ("eu", "us"))
    spans = {ONE: Span(START - 1, START + 30_000)}
    [*slots] = period.slots(START - 1, START + 30_000)
    stray = SlotKey(ONE, "us", START + 1)
    missing, surplus = differences([period], spans, [*(SlotKey(ONE, "eu", slot) for slot in slots), stray])
    assert [(key.region, key.slot_ms) for key in missing] == [("us", slot) for slot in slots]
    assert surplus == (stray,)


def test_only_books_that_may_not_balance_are_looked_at() -> None:
    periods = [Period(Cadence(each, 10_000, START - 100_000), ("eu",)) for each in (ONE, TWO)]
    spans = {each: Span(START, START + 30_000) for each in (ONE, TWO)}
    due = expected(periods, spans)
    stray = UUID(int=3)
    stored = {(ONE, "eu"): due[ONE, "eu"], (TWO, "eu"): due[TWO, "eu"] - 1, (stray, "eu"): 1}
    assert suspects(periods, spans, due, stored) == {TWO, stray}


def test_a_changed_cadence_is_looked_at_even_when_the_numbers_agree() -> None:
    spans = {ONE: Span(START, START + 30_000)}
    ended = [Period(Cadence(ONE, 10_000, START - 100_000), ("eu",), START + 15_000)]
    due = expected(ended, spans)
    assert suspects(ended, spans, due, due) == {ONE}


def test_a_slot_is_not_called_lost_while_it_may_still_be_run() -> None:
    periods = [Period(Cadence(ONE, 5_000, 0), ("eu",)), Period(Cadence(TWO, 3_600_000, 0), ("eu",))]
    settled = {ONE: START - 120_000, TWO: START - 2 * 3_600_000 - 60_000}
    since = spans_since(periods, START - 10_000_000, START)
    assert since == {monitor_id: Span(START - 10_000_000, end) for monitor_id, end in settled.items()}
    assert spans_since(periods, START - 60_000, START) == {}
    latest = latest_spans(periods, 900_000, START)
    assert latest == {monitor_id: Span(end - 900_000, end) for monitor_id, end in settled.items()}
