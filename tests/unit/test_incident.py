"""The life of an incident: which steps a status asks for, and what people hear of each."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from shared.domain import incident as machine
from shared.domain.incident import (
    Event,
    Failure,
    Incident,
    IncidentState,
    Severity,
    Step,
    Transition,
    may_reopen,
    steps,
)
from shared.domain.state import MonitorStatus

UP, DEGRADED, DOWN = MonitorStatus.UP, MonitorStatus.DEGRADED, MonitorStatus.DOWN
OPEN = Incident(
    id=UUID(int=1),
    organisation_id=UUID(int=2),
    monitor_id=UUID(int=3),
    severity=Severity.DOWN,
    cause="timeout",
    message="no answer",
    started_at_ms=1_000,
    opened_at_ms=1_500,
    last_failure_at_ms=1_000,
)
RESOLVED = replace(OPEN, state=IncidentState.RESOLVED, resolved_at_ms=5_000)
FAILURE = Failure("connect_refused", "nothing listens", "w1", "default", 9_000, '{"status": "down"}')


def told(event: Event) -> Transition | None:
    return event.tell


@pytest.mark.parametrize(
    ("status", "announced", "expected"),
    [
        (UP, UP, ()),
        (UP, DEGRADED, (Step.RESOLVE,)),
        (UP, DOWN, (Step.RESOLVE,)),
        (DEGRADED, UP, (Step.OPEN,)),
        (DEGRADED, DEGRADED, ()),
        (DEGRADED, DOWN, (Step.RESOLVE, Step.OPEN)),
        (DOWN, UP, (Step.OPEN,)),
        (DOWN, DEGRADED, (Step.RAISE,)),
        (DOWN, DOWN, ()),
        *((status, announced, ()) for status in ("pending", "unknown") for announced in (UP, DEGRADED, DOWN)),
    ],
)
def test_steps_from_what_was_announced_to_the_truth(
    status: str, announced: MonitorStatus, expected: tuple[Step, ...]
) -> None:
    assert steps(MonitorStatus(status), announced) == expected


@pytest.mark.parametrize(
    ("before", "started_at_ms", "expected"),
    [
        (RESOLVED, 5_999, True),
        (RESOLVED, 6_000, False),
        (OPEN, 5_100, False),
        (replace(RESOLVED, silent=True), 5_100, False),
        (replace(RESOLVED, resolved_by="paused"), 5_100, False),
        (replace(RESOLVED, severity=Severity.DEGRADED), 5_100, False),
    ],
    ids=["within the window", "too late", "open", "nobody knew", "ended by somebody", "of another severity"],
)
def test_what_is_opened_again(before: Incident, started_at_ms: int, *, expected: bool) -> None:
    assert may_reopen(before, Severity.DOWN, started_at_ms, 1_000) is expected


def test_reopening_begins_anew_with_the_same_start_and_evidence() -> None:
    before = replace(RESOLVED, acknowledged_at_ms=2_000, acknowledged_by="me", first_result="{}")
    after, event = machine.reopened(before, FAILURE, 9_100)
    assert (after.state, after.reopened, after.resolved_at_ms, after.acknowledged_by) == ("open", 1, None, None)
    assert (after.started_at_ms, after.first_result, after.cause) == (1_000, "{}", "connect_refused")
    assert (after.opened_at_ms, after.held, after.silent) == (9_100, False, False)
    assert (event.kind, told(event)) == ("reopened", Transition.REOPENED)


def test_a_reopened_incident_may_have_to_wait_as_a_new_one_does() -> None:
    held, event = machine.reopened(RESOLVED, FAILURE, 9_100, 1_000)
    assert (held.held, held.silent, held.alert_not_before_ms, told(event)) == (True, True, 10_100, None)
    _, events = machine.released(held, 10_000)
    assert [told(event) for event in events] == [Transition.REOPENED]


def test_getting_worse_is_told_as_opened_and_wakes_up_who_had_acknowledged() -> None:
    before = replace(OPEN, severity=Severity.DEGRADED, state=IncidentState.ACKNOWLEDGED, acknowledged_by="me")
    after, event = machine.raised(before, FAILURE, 9_100)
    assert (after.state, after.severity, after.last_failure_at_ms) == ("open", "down", 9_000)
    assert (told(event), event.at_ms, event.detail["severity"]) == (Transition.OPENED, 9_100, "down")


def test_what_nobody_heard_begin_ends_without_a_word() -> None:
    _, loud = machine.resolved(OPEN, 5_000, 5_100)
    _, silent = machine.resolved(replace(OPEN, silent=True), 5_000, 5_100)
    assert (told(loud), told(silent)) == (Transition.RESOLVED, None)


def test_an_incident_never_ends_before_it_began() -> None:
    after, _ = machine.resolved(OPEN, 10, 5_100, "API key CI", "known")
    assert (after.resolved_at_ms, after.resolved_by) == (1_000, "API key CI")


def test_an_explained_incident_waits_no_longer_and_stays_silent() -> None:
    held = replace(OPEN, held=True, silent=True, alert_not_before_ms=3_000)
    after, event = machine.affected(held, UUID(int=7), 2_000)
    assert (after.held, after.silent, after.affected_by, told(event)) == (False, True, UUID(int=7), None)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (OPEN, [Transition.OPENED]),
        (replace(OPEN, state=IncidentState.ACKNOWLEDGED), [Transition.OPENED]),
        (RESOLVED, [Transition.OPENED, Transition.RESOLVED]),
    ],
    ids=["open", "acknowledged", "resolved meanwhile"],
)
def test_a_released_incident_is_told_with_its_end_if_that_came_meanwhile(
    before: Incident, expected: list[Transition]
) -> None:
    held = replace(before, held=True, silent=True, affected_by=UUID(int=7), alert_not_before_ms=3_000)
    after, events = machine.released(held, 2_000)
    assert [told(event) for event in events] == expected
    assert (after.held, after.silent, after.affected_by, after.alert_not_before_ms) == (False, False, None, 2_000)


def test_a_late_failure_does_not_move_the_last_one_back() -> None:
    assert machine.failed_again(replace(OPEN, last_failure_at_ms=9_500), FAILURE).last_failure_at_ms == 9_500
