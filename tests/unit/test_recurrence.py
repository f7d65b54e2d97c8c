"""Spans on a local clock, as instants."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.cron import ScheduleError
from shared.domain.recurrence import Recurrence, merged


def at(text: str) -> int:
    return to_milliseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


def recurrence(**fields: Any) -> Recurrence:
    return Recurrence.model_validate({"duration_minutes": 60, "timezone": "Europe/Berlin", **fields})


def shown(rule: Recurrence, since: str, until: str) -> list[tuple[str, str]]:
    spans = rule.spans(at(since), at(until))
    return [(f"{to_datetime(start):%m-%d %H:%M}", f"{to_datetime(end):%m-%d %H:%M}") for start, end in spans]


SPRING, AUTUMN = ("2026-03-28", "2026-03-30"), ("2026-10-24", "2026-10-26")


@pytest.mark.parametrize(
    ("local_start", "days", "expected"),
    [
        ("30 3", SPRING, [("03-28 02:30", "03-28 03:30"), ("03-29 01:30", "03-29 02:30")]),
        ("30 3", AUTUMN, [("10-24 01:30", "10-24 02:30"), ("10-25 02:30", "10-25 03:30")]),
        ("0 2", SPRING, [("03-28 01:00", "03-28 02:00")]),
        ("0 2", ("2026-03-30", "2026-03-31"), [("03-30 00:00", "03-30 01:00")]),
        ("0 2", AUTUMN, [("10-24 00:00", "10-24 01:00"), ("10-25 00:00", "10-25 02:00")]),
        ("30 2", SPRING, [("03-28 01:30", "03-28 02:30"), ("03-29 01:00", "03-29 01:30")]),
        ("30 2", AUTUMN, [("10-24 00:30", "10-24 01:30"), ("10-25 00:30", "10-25 02:30")]),
        ("30 1", ("2026-03-29", "2026-03-29 12:00"), [("03-29 00:30", "03-29 01:00")]),
        ("30 1", ("2026-10-25", "2026-10-25 12:00"), [("10-24 23:30", "10-25 01:30")]),
    ],
)
@pytest.mark.parametrize("written_as", ["cron", "rrule"])
def test_time_02_a_window_follows_the_wall_clock(
    written_as: str, local_start: str, days: tuple[str, str], expected: list[tuple[str, str]]
) -> None:
    minute, hour = local_start.split()
    if written_as == "cron":
        rule = recurrence(cron=f"{local_start} * * *")
    else:
        rule = recurrence(rrule="FREQ=DAILY", first_start=f"2026-01-01T{hour:>02}:{minute:>02}:00")
    assert shown(rule, *days) == expected


def test_a_span_that_began_before_is_found_and_a_span_that_ends_there_is_not() -> None:
    rule = recurrence(cron="0 22 * * 5", duration_minutes=3 * 24 * 60, timezone="UTC")
    friday = ("11-27 22:00", "11-30 22:00")
    assert shown(rule, "2026-11-30 21:59", "2026-12-01") == [friday]
    assert shown(rule, "2026-11-30 22:00", "2026-12-01") == []
    assert shown(rule, "2026-11-27", "2026-11-27 22:00") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=DAILY;COUNT=2", ["12-01", "12-02"]),
        ("RRULE:freq=daily;until=20261202", ["12-01", "12-02"]),
        ("FREQ=DAILY;UNTIL=20261202T030000Z", ["12-01", "12-02"]),
        ("FREQ=DAILY;UNTIL=20261202T025959Z", ["12-01"]),
        ("FREQ=DAILY;UNTIL=20261202T040000", ["12-01", "12-02"]),
        ("FREQ=MONTHLY;BYDAY=-1SU", ["12-27"]),
    ],
)
def test_the_end_and_the_days_of_a_rule_are_local(text: str, expected: list[str]) -> None:
    rule = recurrence(rrule=text, first_start="2026-12-01T04:00:00")
    assert [start[:5] for start, _ in shown(rule, "2026-11-30", "2027-01-01")] == expected


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYMONTHDAY=30;BYMONTH=2",
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=DAILY;BYSETPOS=3",
        "FREQ=DAILY;COUNT=1",
        "FREQ=DAILY;UNTIL=20261001",
        "FREQ=DAILY;UNTIL=20269999",
        "FREQ=SECONDLY",
        "FREQ=DAILY;BYSECOND=1,2,3",
        "FREQ=DAILY;BYHOUR=1",
        "FREQ=DAILY;FREQ=DAILY",
        "FREQ=WEEKLY;BYDAY=1MO",
        "FREQ=DAILY;INTERVAL=0",
        "BYDAY=MO",
        "FREQ=DAILY;BYMONTH=13",
        "DTSTART:20260101T000000\nRRULE:FREQ=DAILY",
        "",
    ],
    ids=lambda text: text[:40].replace("\n", " ") or "empty",
)
def test_a_rule_that_cannot_be_or_never_comes_is_refused_soon(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ScheduleError):
        recurrence(rrule=text, first_start="2025-01-01T03:00:00").check(at("2026-11-30"))
    assert time.process_time() - started < 20, "it would count through thousands of years"


@pytest.mark.parametrize("expression", ["* * * * *", "0,30 * * * *", "0,1 0 1 1 *"])
def test_a_window_that_opens_all_the_time_is_refused(expression: str) -> None:
    with pytest.raises(ScheduleError, match="more often than once an hour"):
        recurrence(cron=expression).check(at("2026-11-30"))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "cron"),
        ({"cron": "0 1 * * *", "rrule": "FREQ=DAILY", "first_start": "2026-01-01T00:00:00"}, "cron"),
        ({"rrule": "FREQ=DAILY"}, "first_start"),
        ({"cron": "0 1 * * *", "first_start": "2026-01-01T00:00:00"}, "first_start"),
        ({"rrule": "FREQ=DAILY", "first_start": "1926-01-01T00:00:00"}, "year"),
        ({"rrule": "FREQ=DAILY", "first_start": "2026-01-01T00:00:30"}, "whole minutes"),
        ({"rrule": "FREQ=DAILY", "first_start": "2026-01-01T00:00:00Z"}, "timezone"),
        ({"cron": "0 1 * * *", "timezone": "Mars/Olympus"}, "no time zone"),
    ],
)
def test_an_unclear_recurrence_is_refused(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        recurrence(**fields)


RULES = st.builds(
    lambda frequency, interval, days: f"FREQ={frequency};INTERVAL={interval}{days}",
    st.sampled_from(["DAILY", "WEEKLY", "MONTHLY"]),
    st.integers(1, 5),
    st.sampled_from(["", ";BYDAY=MO,TH", ";BYMONTHDAY=1,15,-1", ";BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"]),
)


FIRSTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1))  # noqa: DTZ001 local times are the subject


@given(RULES, FIRSTS)
def test_the_walk_at_the_end_of_the_calendar_finds_the_same_days(text: str, first: datetime) -> None:
    first = first.replace(second=0, microsecond=0)
    rule = Recurrence(rrule=text, first_start=first, duration_minutes=1, timezone="UTC")
    since, until = first + timedelta(days=200), first + timedelta(days=600)
    found = [
        start
        for start, _ in rule.spans(
            to_milliseconds(since.replace(tzinfo=UTC)), to_milliseconds(until.replace(tzinfo=UTC))
        )
    ]
    plain = rrulestr(text, dtstart=first).between(since - timedelta(minutes=1), until)
    expected = [to_milliseconds(start.replace(tzinfo=UTC)) for start in plain]
    assert found == [start for start in expected if start + 60_000 > to_milliseconds(since.replace(tzinfo=UTC))]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_spans_cover_the_same_time_and_do_not_touch(spans: list[tuple[int, int]]) -> None:
    result = merged(spans)
    covered = {moment for start, end in spans for moment in range(start, end)}
    assert {moment for start, end in result for moment in range(start, end)} == covered
    assert all(before[1] < after[0] for before, after in itertools.pairwise(result))
