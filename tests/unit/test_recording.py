"""Batches of results, folded into states: order, revisions, pauses and duplicates."""

from __future__ import annotations

from uuid import UUID

import pytest

from shared.contracts.documents import encode
from shared.contracts.wire import ResultMessage
from shared.db.repositories.state import StateRow
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.result import CheckVerdict, ResultStatus, missed
from shared.domain.state import MonitorState, MonitorStatus, Rules, Thresholds
from shared.services.incident_ledger import Course
from shared.services.recording import advance, one_per_slot, row_of

MONITOR, OTHER = UUID(int=1), UUID(int=2)
UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens"))
MISSED = missed(MissedReason.WORKER_GAP, "no worker")


def message(
    slot_ms: int,
    verdict: CheckVerdict = UP,
    monitor_id: UUID = MONITOR,
    revision: int = 1,
    *,
    worker: str = "",
) -> ResultMessage:
    started = None if verdict is MISSED else slot_ms + 5
    return ResultMessage(monitor_id, revision, "default", slot_ms, started, verdict, worker=worker)


def row(
    *,
    overlay: MonitorStatus | None = None,
    revision: int = 1,
    failure_threshold: int = 1,
    monitor_id: UUID = MONITOR,
) -> StateRow:
    state = MonitorState(overlay=overlay, overlay_since_ms=None if overlay is None else 0)
    return StateRow(monitor_id, UUID(int=9), revision, Rules(Thresholds(failure_threshold)), state)


def advanced(rows: dict[UUID, StateRow], *messages: ResultMessage) -> list[Course]:
    courses, _ = advance(rows, messages)
    return courses


def test_a_verdict_wins_over_a_missed_record_of_the_same_slot_in_either_order() -> None:
    for order in ([message(1, MISSED), message(1, DOWN)], [message(1, DOWN), message(1, MISSED)]):
        assert [chosen.verdict for chosen in one_per_slot(order).values()] == [DOWN]


def test_the_first_of_two_verdicts_of_a_slot_counts() -> None:
    assert [chosen.verdict for chosen in one_per_slot([message(1, UP), message(1, DOWN)]).values()] == [UP]


def test_a_batch_is_applied_in_the_order_of_its_slots() -> None:
    first, last, down = message(1000, UP), message(3000, UP), message(2000, DOWN)
    [course] = advanced({MONITOR: row()}, last, first, down)
    assert (course.state.status, course.state.status_since_ms, course.state.last_slot_ms) == ("up", 3000, 3000)
    assert [(state.status, deciding) for state, deciding in course.moments] == [
        ("up", first),
        ("down", down),
        ("up", last),
    ]
    assert (course.newest, course.down, course.degraded) == (last, down, None)


def test_failures_in_one_batch_add_up_to_the_threshold() -> None:
    results = [message(slot, DOWN) for slot in (1000, 2000, 3000)]
    [course] = advanced({MONITOR: row(failure_threshold=3)}, *results)
    assert (course.state.status, course.state.status_since_ms) == (MonitorStatus.DOWN, 1000)
    assert [deciding for _, deciding in course.moments] == [results[2]]


@pytest.mark.parametrize(
    ("rows", "result"),
    [
        ({MONITOR: row(overlay=MonitorStatus.PAUSED)}, message(1000)),
        ({MONITOR: row(revision=2)}, message(1000, revision=1)),
        ({MONITOR: row(revision=1)}, message(1000, revision=2)),
        ({MONITOR: row()}, message(1000, monitor_id=OTHER)),
        ({}, message(1000)),
    ],
    ids=["paused", "older revision", "newer revision", "another monitor", "gone"],
)
def test_what_must_not_change_a_state(rows: dict[UUID, StateRow], result: ResultMessage) -> None:
    assert advanced(rows, result) == []


def test_maintenance_hides_a_state_and_does_not_stop_it() -> None:
    [course] = advanced({MONITOR: row(overlay=MonitorStatus.MAINTENANCE)}, message(1000, DOWN))
    assert (course.state.status, course.state.shown) == ("down", "maintenance")


def test_a_failure_is_trusted_when_its_worker_found_more_well_than_failing_since() -> None:
    rows = {UUID(int=n): row(monitor_id=UUID(int=n)) for n in range(10)}
    down = [message(1000 + n, DOWN, UUID(int=n), worker="w") for n in range(4)]
    well = [message(1002 + n, UP, UUID(int=n + 4), worker="w") for n in range(5)]
    other = message(1000, DOWN, UUID(int=9), worker="other")
    _, sight = advance(rows, [*down, *well, other])
    assert [sight.trusts(each) for each in (*down, other)] == [True, True, True, True, False]
    assert sight.trusts(message(0, DOWN))
    assert sight.glances() == {("w", "default", 1000): (4, 5, 0), ("other", "default", 1000): (1, 0, 0)}


def test_what_was_well_before_a_failure_does_not_speak_for_its_worker() -> None:
    rows = {UUID(int=n): row(monitor_id=UUID(int=n)) for n in range(5)}
    well = [message(1000 + n, UP, UUID(int=n), worker="w") for n in range(4)]
    down = message(1010, DOWN, UUID(int=4), worker="w")
    _, sight = advance(rows, [*well, down])
    assert not sight.trusts(down)


def test_one_more_failure_of_what_was_down_already_is_no_turn() -> None:
    rows, failures = {MONITOR: row()}, [message(slot, DOWN, worker="w") for slot in (1000, 2000, 2001)]
    well = message(2002, UP, OTHER, worker="w")
    _, sight = advance({**rows, OTHER: row(monitor_id=OTHER)}, [*failures, well])
    assert sight.glances() == {("w", "default", 1000): (1, 0, 0), ("w", "default", 2000): (0, 1, 2)}
    assert sight.trusts(failures[1])


def test_a_missed_slot_is_stored_without_times_of_a_run() -> None:
    stored = row_of(message(1000, MISSED))
    assert (stored.status, stored.error_kind, stored.started_at, stored.total_ms) == (
        "missed",
        "worker_gap",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", '"plain"'),
        ("nul\0inside", '"nul�inside"'),
        ("literal \\u0000 text", '"literal \\\\u0000 text"'),
        ({"k\0": ["\0", 1, None]}, '{"k�":["�",1,null]}'),
    ],
)
def test_json_for_postgres_holds_no_nul_and_stays_json(value: object, expected: str) -> None:
    assert encode(value) == expected


def test_a_nul_in_an_error_message_does_not_reach_the_database() -> None:
    verdict = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.PROTOCOL_ERROR, "bad\0line"))
    assert row_of(message(1000, verdict)).error_message == "bad�line"
