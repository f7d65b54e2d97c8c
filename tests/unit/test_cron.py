"""Cron expressions on the days on which clocks change, and those that never come."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.cron import ScheduleError, check_cron, next_cron_ms, zone_of

BERLIN = zone_of("Europe/Berlin")
UTC_ZONE = zone_of("UTC")


def at(text: str) -> int:
    return to_milliseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


def following(expression: str, after: str, count: int) -> list[str]:
    moment, found = at(after), []
    for _ in range(count):
        following_one = next_cron_ms(expression, BERLIN, moment)
        assert following_one is not None
        moment = following_one
        found.append(f"{to_datetime(moment):%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        pytest.param(
            "30 2 * * *", "2026-03-28 12:00", ["03-29 01:00", "03-30 00:30"], id="skipped-runs-after-the-gap"
        ),
        pytest.param("30 2 * * *", "2026-10-24 12:00", ["10-25 00:30", "10-26 01:30"], id="repeated-runs-once"),
        pytest.param("30 2 * * *", "2026-10-25 00:45", ["10-26 01:30"], id="asked-between-the-two"),
        pytest.param("0 9 * * *", "2026-03-27 12:00", ["03-28 08:00", "03-29 07:00"], id="follows-the-wall-clock"),
        pytest.param(
            "*/15 2 * * *",
            "2026-10-24 12:00",
            [*(f"10-25 0{hour}:{minute:02}" for hour in (0, 1) for minute in (0, 15, 30, 45)), "10-26 01:00"],
            id="wildcard-follows-elapsed-time",
        ),
    ],
)
def test_cron_01_runs_as_cron_does_when_clocks_change(expression: str, after: str, expected: list[str]) -> None:
    assert following(expression, after, len(expected)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "60 * * * *",
        "",
        "* " * 5000,
        "* * * * * *",
        "@daily",
        "0 0 * * 2#1/3",
        "1/1/1/1 * * * *",
        "٣ * * * *",
        "0 0 30 2 MON#5/2",
        "0 0 * * MON#9",
    ],
    ids=lambda text: text[:12] or "empty",
)
def test_cron_03_an_impossible_schedule_is_refused_at_once(expression: str) -> None:
    started = time.process_time()
    with pytest.raises(ScheduleError):
        check_cron(expression, BERLIN, at("2026-11-30"))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("0 0 29 2 *", "2028-02-29"), ("0 0 13 * 5", "2026-12-04"), ("0 0 13 2 5", "2027-02-05")],
    ids=["leap-day", "day-or-weekday", "day-or-weekday-of-a-month"],
)
def test_cron_03_a_rare_schedule_is_taken_with_its_next_run(expression: str, expected: str) -> None:
    started = time.process_time()
    check_cron(expression, UTC_ZONE, at("2026-11-30"))
    found = next_cron_ms(expression, UTC_ZONE, at("2026-11-30"))
    assert time.process_time() - started < 2
    assert found == at(expected)


@pytest.mark.parametrize("name", ["", "Europe", "../etc/passwd", "Mars/Olympus", "/etc/localtime", "europe/berlin"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="no time zone"):
        zone_of(name)
