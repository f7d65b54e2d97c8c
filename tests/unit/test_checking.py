"""What a worker does with a slot: run it, call it too old, or say that it can't be run; always with a result."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from pydantic import TypeAdapter

from monitoring_worker.checking import STALE_AFTER_MS, CheckDuty
from shared.contracts.sealing import SealingError
from shared.contracts.wire import CheckTask, ResultMessage, RunNow, RunSpec
from shared.domain.checks import CheckSpec
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.result import CheckVerdict, ResultStatus, missed
from shared.testing.clock import FakeClock
from shared.testing.engine import FakeEngine

MONITOR = UUID(int=1)
RUN = RunSpec({"kind": "http", "url": "http://example.test/"}, 5.0, 1, 0.5)
UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens"))


class Keys:
    """Opens whatever is valid, and counts how often."""

    def __init__(self) -> None:
        self.opened = 0
        self.fails_with: Exception | None = None

    def open(self, stored: dict[str, Any]) -> CheckSpec:
        self.opened += 1
        if self.fails_with:
            raise self.fails_with
        check: CheckSpec = TypeAdapter(CheckSpec).validate_python(stored)
        return check


class Doubts:
    """Doubts failures while there is a reason to."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.asked: list[float] = []

    async def doubt(self, began: float) -> str | None:
        self.asked.append(began)
        return self.reason


class Worker:
    def __init__(self) -> None:
        self.clock, self.engine, self.keys = FakeClock(), FakeEngine(), Keys()
        self.results: list[ResultMessage] = []
        self.canaries = Doubts()
        self.duty = CheckDuty(
            self.engine, self.keys, self.sink, self.clock, region="eu", worker="w1", canaries=self.canaries
        )

    async def sink(self, message: ResultMessage) -> None:
        self.results.append(message)

    def task(self, late_ms: int = 0, interval_ms: int = 10_000, run: RunSpec = RUN) -> CheckTask:
        slot_ms = self.clock.now_ms() - late_ms
        return CheckTask(
            monitor_id=MONITOR, revision=3, region="eu", slot_ms=slot_ms, interval_ms=interval_ms, run=run
        )


@pytest.fixture
def worker() -> Worker:
    return Worker()


async def test_a_due_slot_is_run_with_its_options_and_its_result_keeps_the_slot(worker: Worker) -> None:
    task = worker.task(late_ms=40)
    await worker.duty.scheduled(task)
    [(check, *options)] = worker.engine.asked
    assert (check.kind, options) == ("http", [5.0, 1, 0.5, 10.0])
    [result] = worker.results
    assert (result.key, result.revision, result.verdict) == (task.key, 3, UP)
    assert result.started_at_ms == task.slot_ms + 40


@pytest.mark.parametrize(
    ("late_ms", "interval_ms", "is_run"),
    [
        (STALE_AFTER_MS, 5_000, True),
        (STALE_AFTER_MS + 1, 5_000, False),
        (60_000, 60_000, True),
        (60_001, 60_000, False),
        (-200, 5_000, True),
    ],
)
async def test_a_slot_is_run_while_its_answer_still_means_something(
    worker: Worker, late_ms: int, interval_ms: int, is_run: bool
) -> None:
    await worker.duty.scheduled(worker.task(late_ms, interval_ms))
    [result] = worker.results
    assert (len(worker.engine.asked) == 1) is is_run
    if not is_run:
        assert result.verdict.error is not None
        assert (result.verdict.status, result.verdict.error.kind) == (ResultStatus.MISSED, ErrorKind.WORKER_GAP)
        assert result.started_at_ms is None


@pytest.mark.parametrize("fault", [SealingError("wrong key for s3cret"), None])
async def test_a_check_that_can_not_be_used_is_down_with_a_reason_and_without_a_secret(
    worker: Worker, fault: Exception | None
) -> None:
    worker.keys.fails_with = fault
    spec = {"kind": "http", "url": "http://example.test/", "headers": {"X-A": "s3cret\r\n"}}
    await worker.duty.scheduled(worker.task(run=RunSpec(spec, 5.0, 0, 1.0)))
    [result] = worker.results
    assert result.verdict.error is not None
    assert (result.verdict.status, result.verdict.error.kind) == (ResultStatus.DOWN, ErrorKind.CONFIG_ERROR)
    assert "s3cret" not in result.verdict.error.message


async def test_secrets_are_opened_once_per_revision(worker: Worker) -> None:
    for _ in range(3):
        await worker.duty.scheduled(worker.task())
    assert worker.keys.opened == 1


async def test_a_preview_is_answered_and_not_stored(worker: Worker) -> None:
    answer = await worker.duty.on_demand(RunNow(RUN, "eu"))
    assert (answer.verdict, answer.region, worker.results) == (UP, "eu", [])


async def test_a_saved_monitor_run_by_hand_is_stored_as_such(worker: Worker) -> None:
    answer = await worker.duty.on_demand(RunNow(RUN, "eu", MONITOR, 3, store=True))
    [result] = worker.results
    assert (result.trigger, result.slot_ms, result.monitor_id) == ("manual", answer.slot_ms, MONITOR)


async def test_a_failure_is_not_held_against_the_target_while_the_worker_fails_its_canaries(worker: Worker) -> None:
    await worker.duty.scheduled(worker.task())
    assert worker.canaries.asked == []
    worker.engine.verdict = DOWN
    await worker.duty.scheduled(worker.task())
    worker.canaries.reason = "this worker fails its canaries: example.test"
    await worker.duty.scheduled(worker.task())
    answer = await worker.duty.on_demand(RunNow(RUN, "eu"))
    kinds = [result.verdict.error and result.verdict.error.kind for result in worker.results]
    assert kinds == [None, ErrorKind.CONNECT_REFUSED, ErrorKind.WORKER_GAP]
    assert (answer.verdict.status, answer.verdict.error) == (
        ResultStatus.MISSED,
        CheckError(ErrorKind.WORKER_GAP, "this worker fails its canaries: example.test"),
    )
    assert {result.worker for result in worker.results} == {"w1"}


async def test_a_slot_that_was_more_than_the_worker_could_do_is_counted_as_missed(worker: Worker) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("tocsin_slots_missed_total", {"reason": "overloaded"}) or 0

    before = counted()
    worker.engine.verdict = missed(MissedReason.OVERLOADED, "256 names are being looked up, and none is answered")
    await worker.duty.scheduled(worker.task())
    assert [result.verdict.status for result in worker.results] == [ResultStatus.MISSED]
    assert counted() == before + 1
