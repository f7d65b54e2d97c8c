"""Who is due when: tables for the rules, properties for what must hold however anybody looks."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.domain.alert_policy import DEFAULT_POLICY, AlertPolicySpec, Match, QuietHours, select
from shared.domain.clock import to_milliseconds
from shared.domain.escalation import Ladder, Plan, evaluate, quiet_until
from shared.domain.notification import Event

A, B, C = (UUID(int=number) for number in (1, 2, 3))
START = to_milliseconds(datetime(2026, 1, 5, 12, 0, tzinfo=UTC))


def policy(**fields: Any) -> AlertPolicySpec:
    return AlertPolicySpec.model_validate({"name": "p", **fields})


def step(delay: int, *channels: UUID, **fields: Any) -> dict[str, Any]:
    return {"delay_seconds": delay, "channels": [str(channel) for channel in channels], **fields}


def told(plan: Plan) -> list[tuple[UUID, Event]]:
    return [(due.channel_id, due.event) for due in plan.due]


def walk(spec: AlertPolicySpec, seconds: list[int], **ladder: Any) -> list[tuple[int, UUID, Event]]:
    """Look at these times and say who was told when."""
    at = Ladder(START, **ladder)
    heard: list[tuple[int, UUID, Event]] = []
    for second in seconds:
        plan = evaluate(spec, [C], at, START + second * 1000)
        heard += [(second, *each) for each in told(plan)]
        at = Ladder(START, plan.steps_done, plan.reminders_done)
    return heard


def test_the_default_policy_tells_every_default_channel_at_once_and_nothing_more() -> None:
    plan = evaluate(DEFAULT_POLICY, [A, B], Ladder(START), START)
    assert told(plan) == [(A, Event.OPENED), (B, Event.OPENED)]
    assert plan.next_alert_ms is None


def test_steps_follow_each_other_and_a_second_look_repeats_nothing() -> None:
    spec = policy(steps=[step(0, A), step(300, B), {"delay_seconds": 600}])
    assert walk(spec, [0, 0, 299, 300, 300, 600, 9000]) == [
        (0, A, Event.OPENED),
        (300, B, Event.OPENED),
        (600, C, Event.OPENED),
    ]
    assert evaluate(spec, [C], Ladder(START), START).next_alert_ms == START + 300_000


def test_a_look_that_comes_late_tells_each_channel_once() -> None:
    spec = policy(steps=[step(0, A), step(60, A, B), step(120, B)], repeat=1, reminder_seconds=60)
    assert walk(spec, [500]) == [(500, A, Event.OPENED), (500, B, Event.OPENED)]


def test_steps_begin_again_while_nobody_acknowledges() -> None:
    spec = policy(steps=[step(0, A), step(60, B)], repeat=2, repeat_after_seconds=100)
    assert walk(spec, list(range(0, 600, 10))) == [
        (0, A, Event.OPENED),
        (60, B, Event.OPENED),
        (160, A, Event.REMINDER),
        (220, B, Event.REMINDER),
        (320, A, Event.REMINDER),
        (380, B, Event.REMINDER),
    ]


def test_reminders_go_to_whoever_was_told_and_one_stands_for_those_that_were_missed() -> None:
    spec = policy(steps=[step(0, A), step(90, B)], reminder_seconds=60)
    assert walk(spec, [0, 60, 90, 120, 400]) == [
        (0, A, Event.OPENED),
        (60, A, Event.REMINDER),
        (90, B, Event.OPENED),
        (120, A, Event.REMINDER),
        (120, B, Event.REMINDER),
        (400, A, Event.REMINDER),
        (400, B, Event.REMINDER),
    ]
    plan = evaluate(spec, [], Ladder(START, 2, 1), START + 100_000)
    assert plan.next_alert_ms == START + 120_000


def test_nothing_escalates_once_it_is_acknowledged() -> None:
    spec = policy(steps=[step(0, A), step(60, B)], repeat=3, reminder_seconds=60)
    plan = evaluate(spec, [C], Ladder(START, 1, 0, is_open=False), START + 10_000_000)
    assert (plan.due, plan.next_alert_ms) == ((), None)


NIGHT = {"timezone": "Europe/Berlin", "from": "22:00", "to": "07:00"}


def test_a_step_in_its_quiet_hours_waits_for_their_end_and_holds_up_no_other() -> None:
    start = to_milliseconds(datetime(2026, 1, 5, 23, 0, tzinfo=ZoneInfo("Europe/Berlin")))
    spec = policy(steps=[step(0, A, quiet_hours=NIGHT), step(60, B)], reminder_seconds=3600)
    at, heard = Ladder(start), []
    for second in range(0, 10 * 3600, 60):
        plan = evaluate(spec, [], at, start + second * 1000)
        heard += [(second, *each) for each in told(plan)]
        at = Ladder(start, plan.steps_done, plan.reminders_done)
    night = [entry for entry in heard if entry[0] < 8 * 3600]
    assert {channel for _, channel, _ in night} == {B}
    assert (8 * 3600, A, Event.OPENED) in heard
    assert (9 * 3600, A, Event.REMINDER) in heard


BERLIN = ZoneInfo("Europe/Berlin")
QUIET = {
    "inside": (NIGHT, (2026, 1, 5, 23, 30), (2026, 1, 6, 7, 0)),
    "after midnight": (NIGHT, (2026, 1, 6, 1, 0), (2026, 1, 6, 7, 0)),
    "outside": (NIGHT, (2026, 1, 5, 21, 59), (2026, 1, 5, 21, 59)),
    "at its end": (NIGHT, (2026, 1, 6, 7, 0), (2026, 1, 6, 7, 0)),
    "at its beginning": (NIGHT, (2026, 1, 5, 22, 0), (2026, 1, 6, 7, 0)),
    "clocks go forward": (NIGHT, (2026, 3, 28, 23, 0), (2026, 3, 29, 7, 0)),
    "clocks go back": (NIGHT, (2026, 10, 24, 23, 0), (2026, 10, 25, 7, 0)),
    "ends in the hour that is skipped": ({**NIGHT, "to": "02:30"}, (2026, 3, 28, 23, 0), (2026, 3, 29, 3, 30)),
    "not this day": ({**NIGHT, "days": ["tue"]}, (2026, 1, 5, 23, 0), (2026, 1, 5, 23, 0)),
    "the night of its day": ({**NIGHT, "days": ["mon"]}, (2026, 1, 6, 3, 0), (2026, 1, 6, 7, 0)),
    "whole days in a row": (
        {**NIGHT, "from": "00:00", "to": "00:00", "days": ["sat", "sun"]},
        (2026, 1, 10, 12, 0),
        (2026, 1, 12, 0, 0),
    ),
}


@pytest.mark.parametrize("case", QUIET)
def test_quiet_hours_are_local_wall_time(case: str) -> None:
    fields, moment, end = QUIET[case]
    quiet = QuietHours.model_validate(fields)
    found = quiet_until(quiet, to_milliseconds(datetime(*moment, tzinfo=BERLIN)))
    assert found == to_milliseconds(datetime(*end, tzinfo=BERLIN))


def test_of_an_hour_that_comes_twice_the_first_one_ends_quiet_hours() -> None:
    quiet = QuietHours.model_validate({**NIGHT, "to": "02:30"})
    first = to_milliseconds(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0))
    assert quiet_until(quiet, first - 3_600_000) == first
    assert quiet_until(quiet, first) == first


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "UTC")
TIMES = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))


@given(
    zone=st.sampled_from(ZONES),
    starts=TIMES,
    ends=TIMES,
    days=st.sets(st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]), min_size=1, max_size=6),
    now=st.integers(
        to_milliseconds(datetime(2020, 1, 1, tzinfo=UTC)), to_milliseconds(datetime(2035, 1, 1, tzinfo=UTC))
    ),
)
def test_quiet_hours_end_and_at_their_end_it_is_not_quiet(
    zone: str, starts: Any, ends: Any, days: set[str], now: int
) -> None:
    quiet = QuietHours.model_validate({"timezone": zone, "from": starts, "to": ends, "days": sorted(days)})
    end = quiet_until(quiet, now)
    assert now <= end <= now + 8 * 86_400_000
    assert quiet_until(quiet, end) == end


STEPS = st.lists(
    st.tuples(
        st.integers(0, 900),
        st.sampled_from([[A], [B], [A, B], [C], "default"]),
        st.sampled_from([None, NIGHT]),
    ),
    min_size=1,
    max_size=4,
)


@given(
    steps=STEPS,
    repeat=st.integers(0, 3),
    reminder=st.sampled_from([None, 60, 600]),
    began=st.integers(START, START + 365 * 86_400_000),
    looks=st.lists(st.integers(0, 3 * 86_400), min_size=1, max_size=30),
)
def test_however_often_we_look_each_step_is_taken_once_and_the_next_look_is_never_missed(
    steps: list[Any], repeat: int, reminder: int | None, began: int, looks: list[int]
) -> None:
    ordered = sorted(steps, key=lambda each: each[0])
    spec = policy(
        steps=[{"delay_seconds": d, "channels": c, "quiet_hours": q} for d, c, q in ordered],
        repeat=repeat,
        repeat_after_seconds=120,
        reminder_seconds=reminder,
    )
    at = Ladder(began)
    keys: Counter[tuple[UUID, str]] = Counter()
    expected: int | None = began
    for second in sorted({0, *looks}):
        now = began + second * 1000
        plan = evaluate(spec, [C], at, now)
        if expected is None or now < expected:
            assert not plan.due
        channels = [due.channel_id for due in plan.due]
        assert len(channels) == len(set(channels))
        keys.update((due.channel_id, due.key) for due in plan.due)
        assert plan.steps_done >= at.steps_done
        assert plan.next_alert_ms is None or plan.next_alert_ms > now
        at, expected = Ladder(began, plan.steps_done, plan.reminders_done), plan.next_alert_ms
    assert not keys or max(keys.values()) == 1


def test_the_first_policy_that_matches_counts() -> None:
    shop = policy(match={"tags": {"team": "shop"}})
    severe = policy(match={"severities": ["down"]})
    any_team = policy(match={"tags": {"team": None}})
    policies = [(A, shop), (B, severe), (C, any_team)]
    assert select(policies, {"team": "shop"}, "degraded") == A
    assert select(policies, {}, "down") == B
    assert select(policies, {"team": "mail"}, "degraded") == C
    assert select(policies, {}, "degraded") is None
    assert Match().fits({}, "down")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"steps": []}, "steps"),
        ({"steps": [step(60, A), step(0, B)]}, "steps"),
        ({"steps": [{"quiet_hours": {**NIGHT, "timezone": "Mars/Base"}}]}, "timezone"),
        ({"steps": [{"quiet_hours": {**NIGHT, "to": "22:00"}}]}, "quiet_hours"),
        ({"steps": [{"quiet_hours": {**NIGHT, "from": "22:00+01:00"}}]}, "from"),
        ({"match": {"severities": ["broken"]}}, "severities"),
        ({"repeat": 99}, "repeat"),
        ({"reminder_seconds": 5}, "reminder_seconds"),
        ({"typo": 1}, "typo"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_never_be_told_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        policy(**fields)


def test_a_policy_reads_back_as_it_was_written() -> None:
    spec = policy(steps=[step(0, A, quiet_hours={**NIGHT, "days": ["mon"]})], repeat=1)
    stored = spec.model_dump(mode="json", by_alias=True)
    assert stored["steps"][0]["quiet_hours"]["from"] == "22:00:00"
    assert AlertPolicySpec.model_validate(stored) == spec
    assert spec.channel_ids() == {A}
    assert timedelta(seconds=spec.repeat_after_seconds) == timedelta(minutes=15)
