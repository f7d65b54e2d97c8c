"""Batches of results, folded into states: order, revisions, pauses and duplicates."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from shared.contracts.documents import encode
from shared.contracts.wire import ResultMessage
from shared.db.repositories.state import StateRow
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.result import CheckVerdict, ResultStatus, missed
from shared.domain.state import MonitorState, MonitorStatus, Thresholds
from shared.services.recording import advance, one_per_slot, row_of

MONITOR, OTHER = UUID(int=1), UUID(int=2)
UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens"))
MISSED = missed(MissedReason.WORKER_GAP, "no worker")


def message(
    slot_ms: int, verdict: CheckVerdict = UP, monitor_id: UUID = MONITOR, revision: int = 1
) -> ResultMessage:
    started = None if verdict is MISSED else slot_ms + 5
    return ResultMessage(monitor_id, revision, "default", slot_ms, started, verdict)


def row(*, paused: bool = False, revision: int = 1, failure_threshold: int = 1) -> StateRow:
    return StateRow(MONITOR, UUID(int=9), revision, paused, Thresholds(failure_threshold), MonitorState())


def test_a_verdict_wins_over_a_missed_record_of_the_same_slot_in_either_order() -> None:
    for order in ([message(1, MISSED), message(1, DOWN)], [message(1, DOWN), message(1, MISSED)]):
        assert [chosen.verdict for chosen in one_per_slot(order).values()] == [DOWN]


def test_the_first_of_two_verdicts_of_a_slot_counts() -> None:
    assert [chosen.verdict for chosen in one_per_slot([message(1, UP), message(1, DOWN)]).values()] == [UP]


def test_a_batch_is_applied_in_the_order_of_its_slots() -> None:
    [after] = advance({MONITOR: row()}, [message(3000, UP), message(1000, UP), message(2000, DOWN)])
    assert (after.state.status, after.state.status_since_ms, after.state.last_slot_ms) == ("up", 3000, 3000)
    assert after.last_result is not None
    assert msgspec.json.decode(after.last_result)["scheduled_at"] == "1970-01-01T00:00:03Z"


def test_failures_in_one_batch_add_up_to_the_threshold() -> None:
    [after] = advance({MONITOR: row(failure_threshold=3)}, [message(slot, DOWN) for slot in (1000, 2000, 3000)])
    assert (after.state.status, after.state.status_since_ms) == (MonitorStatus.DOWN, 3000)


@pytest.mark.parametrize(
    ("rows", "result"),
    [
        ({MONITOR: row(paused=True)}, message(1000)),
        ({MONITOR: row(revision=2)}, message(1000, revision=1)),
        ({MONITOR: row(revision=1)}, message(1000, revision=2)),
        ({MONITOR: row()}, message(1000, monitor_id=OTHER)),
        ({}, message(1000)),
    ],
    ids=["paused", "older revision", "newer revision", "another monitor", "gone"],
)
def test_what_must_not_change_a_state(rows: dict[UUID, StateRow], result: ResultMessage) -> None:
    assert advance(rows, [result]) == []


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
