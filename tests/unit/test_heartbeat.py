"""Heartbeats without a server: what is expected when, and what pings and their absence say."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.heartbeat import MAX_BODY, HeartbeatCheck, Ping, Signal, is_run_id, read_signal, readable_body
from shared.domain.heartbeat_rules import (
    MAX_RUNS,
    HeartbeatState,
    Judgement,
    Reception,
    evaluate,
    first_state,
    next_deadline_ms,
)
from shared.domain.monitor import MonitorSpec
from shared.domain.result import ResultStatus

MINUTE = 60_000
ALWAYS = Reception(((-1, 10**14),))
HOURLY = HeartbeatCheck(period_seconds=3600, grace_seconds=300)


def at(text: str) -> int:
    return to_milliseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


def ping(minute: float, signal: str = "success", run_id: str | None = None, **fields: Any) -> Ping:
    return Ping(int(minute * MINUTE), Signal(signal), run_id=run_id, **fields)


def judged(
    pings: Iterable[Ping],
    until: float,
    spec: HeartbeatCheck = HOURLY,
    reception: Reception = ALWAYS,
    *,
    since: int = 0,
) -> tuple[HeartbeatState, list[Judgement]]:
    return evaluate(spec, first_state(spec, since), pings, int(until * MINUTE), reception)


def told(found: Iterable[Judgement]) -> list[tuple[float, str]]:
    """Minute and status, in order of time."""
    shown = [(judgement.slot_ms / MINUTE, judgement.verdict.status.value) for judgement in found]
    return sorted(shown)


def message(judgement: Judgement) -> str:
    assert judgement.verdict.error is not None
    return judgement.verdict.error.message


@pytest.mark.parametrize(
    ("cron", "since", "pings", "until", "statuses", "expected"),
    [
        pytest.param(
            "30 2 * * *", "2026-03-28 12:00", ["2026-03-29 01:00"], "2026-03-30 00:44", "up", "2026-03-30 00:30",
            id="skipped-hour",
        ),
        pytest.param(
            "30 2 * * *", "2026-10-24 12:00", ["2026-10-25 00:30"], "2026-10-25 01:46", "up", "2026-10-26 01:30",
            id="repeated-hour",
        ),
        pytest.param(
            "0 9 * * *", "2026-03-27 12:00", ["2026-03-28 08:00", "2026-03-29 07:00"], "2026-03-30 07:14", "up up",
            "2026-03-30 07:00", id="wall-clock",
        ),
        pytest.param(
            "*/15 2 * * *", "2026-10-24 12:00",
            [f"2026-10-25 0{hour}:{minute:02}" for hour in (0, 1) for minute in (0, 15, 30, 45)],
            "2026-10-25 03:00", " ".join(["up"] * 8), "2026-10-26 01:00", id="eight-pings",
        ),
        pytest.param(
            "*/15 2 * * *", "2026-10-24 12:00",
            [f"2026-10-25 0{hour}:{minute:02}" for hour in (0, 1) for minute in (0, 15, 30, 45)][:4],
            "2026-10-25 01:15", "up up up up down", "2026-10-25 01:15", id="one-of-eight-is-missing",
        ),
    ],
)  # fmt: skip
def test_cron_01_is_up_throughout(  # noqa: PLR0917 one argument for each column of the table
    cron: str, since: str, pings: list[str], until: str, statuses: str, expected: str
) -> None:
    spec = HeartbeatCheck(cron=cron, timezone="Europe/Berlin", grace_seconds=900)
    received = [Ping(at(moment), Signal.SUCCESS) for moment in pings]
    state, found = evaluate(spec, first_state(spec, at(since)), received, at(until), ALWAYS)
    assert [judgement.verdict.status.value for judgement in found] == statuses.split()
    assert state.expected_ms is not None
    assert f"{to_datetime(state.expected_ms):%Y-%m-%d %H:%M}" == expected


def test_a_job_whose_clock_is_a_little_ahead_is_punctual() -> None:
    spec = HeartbeatCheck(cron="30 2 * * *", grace_seconds=60)
    early = Ping(at("2026-11-30 02:29:58"), Signal.SUCCESS)
    state, _ = evaluate(spec, first_state(spec, at("2026-11-30")), [early], at("2026-11-30 12:00"), ALWAYS)
    assert state.expected_ms == at("2026-12-01 02:30")


def test_cron_02_with_run_ids() -> None:
    pings = [ping(0.001, "start", "A"), ping(1, "start", "B"), ping(2, "success", "A"), ping(8, "success", "B")]
    state, found = judged(pings, 9)
    assert told(found) == [(2, "up"), (6, "down"), (8, "up")]
    assert "run B" in message(found[1])
    assert found[2].verdict.timings_ms.total == 7 * MINUTE
    assert next_deadline_ms(HOURLY, state) == 73 * MINUTE


def test_cron_02_without_run_ids_the_last_start_counts() -> None:
    _, found = judged([ping(0.001, "start"), ping(1, "start"), ping(2)], 30)
    assert told(found) == [(2, "up")]
    assert found[0].verdict.timings_ms.total == MINUTE


def test_cron_02_fail_then_success() -> None:
    _, found = judged([ping(1, "fail"), ping(2)], 3)
    assert told(found) == [(1, "down"), (2, "up")]


def test_a_missing_ping_is_told_once_a_period() -> None:
    state, found = judged([ping(10)], 74)
    assert told(found) == [(10, "up")]
    state, found = evaluate(HOURLY, state, [], 76 * MINUTE, ALWAYS)
    assert told(found) == [(75, "down")]
    assert message(found[0]) == "no ping since 1970-01-01 00:10:00 UTC, expected by 1970-01-01 01:15:00 UTC"
    state, found = evaluate(HOURLY, state, [], 77 * MINUTE, ALWAYS)
    assert found == []
    state, found = evaluate(HOURLY, state, [], 1000 * MINUTE, ALWAYS)
    assert told(found) == [(135, "down")], "however long nobody judged"
    assert next_deadline_ms(HOURLY, state) == (10 + 17 * 60 + 5) * MINUTE


@pytest.mark.parametrize(
    ("pings", "expected"),
    [
        pytest.param([ping(2), ping(1, "start")], [(2, "up")], id="start-arrives-after-its-success"),
        pytest.param([ping(1, "start"), ping(2), ping(1, "start")], [(2, "up")], id="start-comes-twice"),
        pytest.param([ping(2, "success", "A"), ping(1, "start", "A")], [(2, "up")], id="with-an-id"),
        pytest.param([ping(3, "fail"), ping(2)], [(2, "up"), (3, "down")], id="old-success-after-a-failure"),
    ],
)
def test_order_of_storage_does_not_matter(pings: list[Ping], expected: list[tuple[float, str]]) -> None:
    state, found = first_state(HOURLY, 0), []
    for each in pings:
        state, more = evaluate(HOURLY, state, [each], 5 * MINUTE, ALWAYS)
        found += more
    found += evaluate(HOURLY, state, [], 20 * MINUTE, ALWAYS)[1]
    assert told(found) == expected
    assert told(judged(pings, 20)[1]) == expected


def test_a_success_that_is_stored_after_its_deadline_turns_it_up() -> None:
    state, found = judged([], 66)
    assert told(found) == [(65, "down")]
    state, found = evaluate(HOURLY, state, [ping(64)], 67 * MINUTE, ALWAYS)
    assert [judgement.verdict.status for judgement in found] == [ResultStatus.UP]
    assert found[0].slot_ms > 65 * MINUTE, "later than the verdict that it corrects"


def test_a_run_that_was_given_up_does_not_hold_down_the_next() -> None:
    _, found = judged([ping(1, "start", "A"), ping(30, "start", "B"), ping(31, "success", "B")], 40)
    assert told(found) == [(6, "down"), (31, "up")]


def test_what_was_logged_is_the_evidence_of_the_next_verdict() -> None:
    pings = [ping(1, "log", body="a" * MAX_BODY), ping(2, "log", body="the end"), ping(3, "fail", body="boom")]
    _, found = judged(pings, 4)
    assert found[0].verdict.evidence is not None
    body = found[0].verdict.evidence.body
    assert body is not None
    assert body.endswith("a\nthe end\nboom")
    assert len(body) == MAX_BODY


class TestReception:
    def test_a_gap_while_a_ping_was_due_makes_unknown_once(self) -> None:
        reception = Reception(((0, 50 * MINUTE), (63 * MINUTE, 10**12)))
        state, found = judged([ping(1)], 67, reception=reception)
        assert told(found) == [(1, "up"), (66, "missed")]
        assert "from 1970-01-01 01:01:00 UTC to 1970-01-01 01:03:00 UTC" in message(found[1])
        assert next_deadline_ms(HOURLY, state) == 126 * MINUTE, "after a whole period in which it could come"
        _, found = evaluate(HOURLY, state, [], 127 * MINUTE, reception)
        assert told(found) == [(126, "down")]

    def test_an_outage_without_end_is_told_once(self) -> None:
        reception = Reception(((0, 50 * MINUTE),))
        state, found = judged([ping(1)], 67, reception=reception)
        for minute in (200, 400, 600):
            state, more = evaluate(HOURLY, state, [], minute * MINUTE, reception)
            found += more
        assert told(found) == [(1, "up"), (66, "missed")]

    def test_a_gap_at_another_time_changes_nothing(self) -> None:
        reception = Reception(((0, 20 * MINUTE), (40 * MINUTE, 10**12)))
        assert told(judged([ping(1)], 67, reception=reception)[1]) == [(1, "up"), (66, "down")]

    def test_a_run_whose_end_may_be_lost_is_not_down(self) -> None:
        reception = Reception(((0, 2 * MINUTE), (3 * MINUTE, 10**12)))
        assert told(judged([ping(1, "start", "A")], 30, reception=reception)[1]) == [(6, "missed")]

    def test_nothing_is_judged_before_the_receiver_has_written_that_it_was_there(self) -> None:
        deadline = 66 * MINUTE
        state, found = judged([ping(1)], 66.1, reception=Reception(((0, deadline - 1),)))
        assert told(found) == [(1, "up")]
        _, found = evaluate(HOURLY, state, [], int(66.1 * MINUTE), Reception(((0, deadline),)))
        assert told(found) == [(66, "down")]

    def test_a_ping_proves_that_it_could_be_received(self) -> None:
        reception = Reception(((0, 66 * MINUTE - 1000),))
        _, found = judged([ping(1), ping(66.01)], 66.02, reception=reception)
        assert told(found) == [(1, "up"), (66, "down"), (66.01, "up")]

    @pytest.mark.parametrize(
        ("spans", "gap"),
        [
            ([], (10, 20)),
            ([(0, 30)], None),
            ([(10, 20)], None),
            ([(0, 15)], (15, 20)),
            ([(0, 12), (14, 30)], (12, 14)),
            ([(15, 30)], (10, 15)),
            ([(25, 30)], (10, 20)),
            ([(0, 5)], (10, 20)),
        ],
    )
    def test_gaps(self, spans: list[tuple[int, int]], gap: tuple[int, int] | None) -> None:
        assert Reception(tuple(spans)).gap(10, 20) == gap


PINGS = st.lists(
    st.builds(
        Ping,
        st.integers(0, 300 * MINUTE),
        st.sampled_from(Signal),
        run_id=st.sampled_from([None, "A", "B"]),
    ),
    max_size=30,
)


@given(PINGS, st.lists(st.integers(0, 400 * MINUTE), max_size=5))
def test_any_pings_in_any_batches_end_well(pings: list[Ping], cuts: list[int]) -> None:
    state, found, rest = first_state(HOURLY, 0), [], list(pings)
    for now in [*sorted(cuts), 400 * MINUTE]:
        batch, rest = [p for p in rest if p.received_ms <= now], [p for p in rest if p.received_ms > now]
        state, more = evaluate(HOURLY, state, batch, now, ALWAYS)
        found += more
        deadline = next_deadline_ms(HOURLY, state)
        assert deadline is not None
        assert deadline > now
    assert len(state.runs) <= MAX_RUNS
    whole = evaluate(HOURLY, first_state(HOURLY, 0), pings, 400 * MINUTE, ALWAYS)
    if any(p.signal in (Signal.SUCCESS, Signal.FAIL) for p in pings):
        last = max((p for p in pings if p.signal in (Signal.SUCCESS, Signal.FAIL)), key=lambda p: p.received_ms)
        assert max(state.last_success_ms, state.last_failure_ms) == last.received_ms
    assert whole[0].expected_ms == state.expected_ms


def test_too_many_runs_are_bounded() -> None:
    state, _ = judged([ping(1, "start", f"run-{number}") for number in range(500)], 2)
    assert len(state.runs) == MAX_RUNS


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("", (Signal.SUCCESS, None)), ("success", (Signal.SUCCESS, None)), ("start", (Signal.START, None)),
        ("fail", (Signal.FAIL, None)), ("log", (Signal.LOG, None)), ("0", (Signal.SUCCESS, 0)),
        ("1", (Signal.FAIL, 1)), ("255", (Signal.FAIL, 255)), ("256", None), ("-1", None), ("1.0", None),
        ("٣", None), ("Start", None), ("0000", None), ("SUCCESS", None),
    ],
)  # fmt: skip
def test_words(word: str, meaning: tuple[Signal, int | None] | None) -> None:
    assert read_signal(word) == meaning


@pytest.mark.parametrize(
    ("text", "good"), [("a", True), ("a" * 65, False), ("", False), ("a b", False), ("a\n", False)]
)
def test_run_ids(text: str, good: bool) -> None:
    assert is_run_id(text) is good


def test_a_body_is_bounded_and_storable() -> None:
    assert readable_body(b"") is None
    assert readable_body(b"\x00\xff") == "��"
    assert len(readable_body(b"x" * 50_000) or "") == MAX_BODY
    assert readable_body(b"GET http://me:secret@a.example/?token=abc") == "GET http://***@a.example/?token=***"


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "period_seconds"),
        ({"period_seconds": 60, "cron": "* * * * *"}, "period_seconds"),
        ({"period_seconds": 9}, "period_seconds"),
        ({"cron": "0 0 31 2 *"}, "no cron expression"),
        ({"cron": "* * * * *", "timezone": "Nowhere"}, "no time zone"),
        ({"period_seconds": 60, "grace_seconds": 0}, "grace_seconds"),
    ],
)
def test_an_unclear_heartbeat_is_refused(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        HeartbeatCheck.model_validate(fields)


def test_a_heartbeat_has_the_interval_of_its_period_and_comes_from_nowhere() -> None:
    fields: dict[str, Any] = {
        "name": "x",
        "interval_seconds": 5,
        "check": {"kind": "heartbeat", "period_seconds": 30},
    }
    assert MonitorSpec.model_validate(fields).interval_seconds == 30
    with pytest.raises(ValidationError, match="regions"):
        MonitorSpec.model_validate({**fields, "regions": ["eu", "us"]})
