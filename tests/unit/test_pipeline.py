"""What comes next in a pipeline: decided from the definition, the record and the time, and from nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.tasks.declaration import TaskSet
from shared.tasks.errors import DeclarationError, GiveUp, JournalConflictError, RetryLater
from shared.tasks.pipeline import (
    MAX_INTERRUPTIONS,
    Expire,
    Finish,
    Pipeline,
    PipelineDefinitionError,
    Run,
    Step,
    Wait,
    begun,
    failed,
    next_action,
    resumed,
    succeeded,
)
from shared.tasks.pipeline_journal import PipelineJournals
from shared.tasks.pipeline_record import PipelineRecord, StepFailedError, StepRecord
from shared.tasks.pipeline_run import MemoryJournal, run_pipeline
from shared.tasks.pipeline_task import MAX_DELIVERIES, pipeline_task
from shared.tasks.policy import RetryPolicy

START = 1_000_000
THRICE = RetryPolicy(attempts=3, delay=5.0, factor=2.0, jitter=0.0)
A, B, C = Step("a"), Step("b"), Step("c")
UNDO, TIDY = Step("undo"), Step("tidy")


class Nothing(msgspec.Struct):
    pass


def pipeline(*steps: Step, **fields: Any) -> Pipeline:
    return Pipeline(steps, **{"timeout": 100.0, **fields})


def record(**states: str) -> PipelineRecord:
    """A record in which each of these steps is done or failed."""
    steps = {name: StepRecord(state=state) for name, state in states.items()}  # type: ignore[arg-type]
    return PipelineRecord(START, steps)


WHOLE = pipeline(A, Step("b", on_error="continue"), C, compensation=UNDO, cleanup=TIDY)
NEXT = {
    "the first": (record(), "a"),
    "the second": (record(a="done"), "b"),
    "stopped: compensation": (record(a="failed"), "undo"),
    "gone on after a failure": (record(a="done", b="failed"), "c"),
    "gone on, compensation at the end": (record(a="done", b="failed", c="done"), "undo"),
    "no failure: no compensation": (record(a="done", b="done", c="done"), "tidy"),
    "cleanup after compensation": (record(a="failed", undo="done"), "tidy"),
    "cleanup after a failed compensation": (record(a="failed", undo="failed"), "tidy"),
}


@pytest.mark.parametrize(("seen", "name"), NEXT.values(), ids=NEXT.keys())
def test_the_next_step_follows_from_how_the_others_ended(seen: PipelineRecord, name: str) -> None:
    action = next_action(WHOLE, seen, START)
    assert isinstance(action, Run)
    assert action.step.name == name


ENDS = {
    "all done": (record(a="done", b="done", c="done", tidy="done"), Finish((), ("undo",))),
    "stopped": (record(a="failed", undo="done", tidy="done"), Finish(("a",), ("b", "c"))),
    "the cleanup failed": (record(a="done", b="done", c="done", tidy="failed"), Finish(("tidy",), ("undo",))),
}


@pytest.mark.parametrize(("seen", "end"), ENDS.values(), ids=ENDS.keys())
def test_the_end_names_what_failed_and_what_was_skipped(seen: PipelineRecord, end: Finish) -> None:
    assert next_action(WHOLE, seen, START) == end


def after_failure(
    line: Pipeline, step: Step, seen: PipelineRecord, now_ms: int, error: Exception
) -> PipelineRecord:
    return failed(line, begun(seen, step, now_ms), step, error, now_ms)


def test_a_step_inherits_the_policy_of_the_pipeline_and_its_own_wins() -> None:
    own = Step("b", retry=RetryPolicy(attempts=2, delay=1.0, jitter=0.0))
    line = pipeline(A, own, retry=THRICE)
    now, seen = START, record()
    waits = []
    for _ in range(3):
        seen = after_failure(line, A, seen, now, ConnectionError("away"))
        due = seen.of("a").next_ms
        waits.append(due and due - now)
        now = due or now
    assert waits == [5000, 10_000, None]
    assert seen.has_failed("a")
    seen = after_failure(line, own, record(a="done"), START, ConnectionError("away"))
    assert next_action(line, seen, START) == Wait(own, 1.0)
    assert next_action(line, seen, START + 1000) == Run(own, 99.0)
    assert after_failure(line, own, seen, START + 1000, ConnectionError("away")).has_failed("b")


OUTCOMES = {
    "a permanent error": (ValueError("no"), None),
    "give up": (GiveUp("no"), None),
    "a timeout counts and is retried": (TimeoutError(), 5.0),
    "the step asks to wait longer": (RetryLater("busy", after=30), 30.0),
}


@pytest.mark.parametrize(("error", "wait"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_what_is_retried_is_for_the_policy_to_say(error: Exception, wait: float | None) -> None:
    line = pipeline(A, retry=THRICE)
    action = next_action(line, after_failure(line, A, record(), START, error), START)
    assert action == (Finish(("a",)) if wait is None else Wait(A, wait))


def test_each_limit_of_time_bounds_an_attempt() -> None:
    limited = Step("a", attempt_timeout=10.0, timeout=15.0)
    line = pipeline(limited, B, retry=THRICE, timeout=60.0, cleanup=TIDY, reserve=20.0)
    assert next_action(line, record(), START) == Run(limited, 10.0)
    seen = begun(record(), limited, START)
    assert failed(line, seen, limited, TimeoutError(), START + 10_000).has_failed("a"), "the retry is due too late"
    seen = failed(line, seen, limited, TimeoutError(), START + 5000)
    assert next_action(line, seen, START + 10_000) == Run(limited, 5.0)
    assert next_action(line, record(a="done"), START + 30_000) == Run(B, 10.0), "the reserve is not for steps"
    assert next_action(line, record(a="done"), START + 40_000) == Expire(B)
    assert next_action(line, record(a="done", b="done"), START + 40_000) == Run(TIDY, 20.0)
    assert next_action(line, record(a="done", b="failed"), START + 900_000) == Run(TIDY, 20.0), (
        "always, however late"
    )


def test_an_attempt_whose_worker_died_does_not_count_and_a_step_that_kills_workers_fails() -> None:
    line, seen = pipeline(A, B, retry=RetryPolicy(attempts=1)), record()
    for number in range(MAX_INTERRUPTIONS + 1):
        action = next_action(line, seen, START + number)
        assert isinstance(action, Run)
        assert action.step is A
        seen = resumed(begun(seen, A, START + number), START + number)
    assert next_action(line, seen, START + 10) == Finish(("a",), ("b",))
    error = seen.of("a").error
    assert error is not None
    assert error.kind == "worker_lost"


def test_an_attempt_whose_worker_died_takes_none_from_the_policy() -> None:
    line = pipeline(A, retry=RetryPolicy(attempts=2, delay=1.0, jitter=0.0))
    seen = resumed(begun(record(), A, START), START)
    seen = after_failure(line, A, seen, START, ConnectionError("away"))
    assert next_action(line, seen, START) == Wait(A, 1.0), "that was the first attempt, not the second"
    assert after_failure(line, A, seen, START + 1000, ConnectionError("away")).has_failed("a")


def test_a_retry_mends_the_record_of_a_step() -> None:
    line = pipeline(A, retry=THRICE)
    seen = after_failure(line, A, record(), START, ConnectionError("away"))
    assert seen.of("a").error is not None
    seen = succeeded(begun(seen, A, START + 5000), A, 7, START + 5100)
    assert seen.of("a").error is None
    assert seen.of("a").value == 7
    assert [each.duration_ms for each in seen.of("a").attempts] == [0, 100]


BROKEN: dict[str, tuple[tuple[Step, ...], dict[str, Any], str]] = {
    "no steps": ((), {}, "at least one step"),
    "one name twice": ((A, Step("a")), {}, "the same name"),
    "no end": ((A,), {"timeout": 0.0}, "more than 0 s"),
    "nothing left": ((A,), {"cleanup": TIDY, "reserve": 100.0}, "leave the steps"),
    "an attempt longer than all": ((Step("a", attempt_timeout=101.0),), {}, "fit into the pipeline's 100 s"),
    "an attempt longer than its step": ((Step("a", attempt_timeout=9.0, timeout=5.0),), {}, "no attempt could"),
}


@pytest.mark.parametrize(("steps", "fields", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_pipeline_that_cannot_work_is_refused(
    steps: tuple[Step, ...], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(PipelineDefinitionError, match=words):
        pipeline(*steps, **fields)


async def nothing(_: Nothing, __: Any) -> None:
    pass


DECLARED: dict[str, tuple[Pipeline, dict[str, Any], bool, str]] = {
    "a step without a function": (pipeline(A, B), {"a": nothing}, True, "b: give each step one function"),
    "a function without a step": (pipeline(A), {"a": nothing, "x": nothing}, True, "x: give each step one"),
    "not idempotent": (pipeline(A), {"a": nothing}, False, "idempotent=True"),
    "no delay": (
        pipeline(Step("a", retry=RetryPolicy(attempts=2))),
        {"a": nothing},
        True,
        "step 'a': delay=0.0 would",
    ),
    "attempts too long": (pipeline(A, B, timeout=800.0), {"a": nothing, "b": nothing}, True, "at most 900"),
    "too many attempts": (
        pipeline(A, retry=RetryPolicy(attempts=61, delay=1.0)),
        {"a": nothing},
        True,
        "61 attempts together",
    ),
}


@pytest.mark.parametrize(("line", "functions", "idempotent", "words"), DECLARED.values(), ids=DECLARED.keys())
def test_a_declaration_that_would_fail_later_fails_at_import(
    line: Pipeline, functions: dict[str, Any], idempotent: bool, words: str
) -> None:
    tasks: TaskSet[PipelineJournals] = TaskSet()
    with pytest.raises(DeclarationError, match=words):
        pipeline_task(
            tasks, "x", line, functions, argument=Nothing, journals=lambda given: given, idempotent=idempotent
        )


def test_the_message_of_a_run_comes_back_until_the_run_is_over() -> None:
    tasks: TaskSet[PipelineJournals] = TaskSet()
    declared = pipeline_task(
        tasks, "x", pipeline(A), {"a": nothing}, argument=Nothing, journals=lambda given: given, idempotent=True
    )
    assert list(tasks) == [declared]
    assert declared.retry.should_retry(MAX_DELIVERIES - 1, RetryLater("not due yet"))
    assert declared.retry.should_retry(MAX_DELIVERIES - 1, TimeoutError())
    assert not declared.retry.should_retry(MAX_DELIVERIES, TimeoutError()), "its journal has no room for more"
    assert not declared.retry.should_retry(1, GiveUp("a step failed"))
    assert not declared.retry.should_retry(1, JournalConflictError("somebody else goes on"))


class Crash(BaseException):
    """The death of a worker, as far as one process can have it."""


class FragileJournal(MemoryJournal):
    """Dies before or after some of its writes, as the script says; one letter a write."""

    def __init__(self, script: str) -> None:
        super().__init__()
        self._script = iter(script)

    async def save(self, record: PipelineRecord) -> None:
        fate = next(self._script, "-")
        if fate == "b":
            raise Crash
        await super().save(record)
        if fate == "a":
            raise Crash


@given(
    st.text("---ab", max_size=30),
    st.sets(st.sampled_from("abc"), max_size=3),
    st.sampled_from(["stop", "continue"]),
)
def test_whenever_a_worker_dies_the_run_ends_the_same_way(script: str, broken: set[str], on_error: Any) -> None:
    line = pipeline(*(Step(name, on_error=on_error) for name in "abc"), compensation=UNDO, cleanup=TIDY)

    async def attempt(step: Step, _: PipelineRecord, __: float) -> str:
        ran.append(step.name)
        if step.name in broken:
            raise StepFailedError("broken", step.name)
        return step.name

    async def outcome(journal: MemoryJournal) -> tuple[Any, dict[str, Any]]:
        while True:
            try:
                seen = await run_pipeline(line, attempt, journal, lambda: START)
            except Crash:
                continue
            assert all(one.ended_ms is not None for each in seen.steps.values() for one in each.attempts)
            return next_action(line, seen, START), {name: each.value for name, each in seen.steps.items()}

    ran: list[str] = []
    expected = asyncio.run(outcome(MemoryJournal()))
    once, ran = ran, []
    fragile = FragileJournal(script)
    if script.count("a") + script.count("b") <= MAX_INTERRUPTIONS:
        assert asyncio.run(outcome(fragile)) == expected
        assert list(dict.fromkeys(ran)) == once, "the same steps in the same order"
        assert len(ran) - len(once) <= script.count("b"), "again only what was not kept"


async def test_a_cancelled_attempt_is_left_as_under_way() -> None:
    journal = MemoryJournal()

    async def hang(*_: Any) -> None:
        await asyncio.sleep(60)

    running = asyncio.create_task(run_pipeline(pipeline(A), hang, journal, lambda: START))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert journal.record is not None
    assert journal.record.of("a").state == "running"
