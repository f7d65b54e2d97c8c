"""Tasks in real worker processes: when they run again, when they stop, and what is left of them."""

from __future__ import annotations

import itertools
import os
import signal
import time

import msgspec

from shared.contracts.names import TASKS_BUCKET, TASKS_STREAM, task_subject
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream
from shared.messaging.publisher import Publisher
from shared.messaging.task_format import encode_task
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import EVERYTHING, DeadLetter
from shared.tasks.queue import TaskQueue
from shared.testing.tocsin import eventually
from tests.integration.tasks import work
from tests.integration.tasks.crew import Crew
from tests.integration.tasks.work import STEPS, Order


async def letters_of(desk: DeadLetterDesk) -> dict[str, DeadLetter]:
    return {str(letter.task_id): letter for letter in await desk.page(EVERYTHING, limit=1000)}


async def test_three_retries_run_after_1_2_and_4_seconds_and_then_it_is_a_dead_letter(
    crew: Crew, queue: TaskQueue, desk: DeadLetterDesk
) -> None:
    crew.start()
    await queue.send(work.stubborn, Order(), task_id="s")
    await crew.until("the first run", lambda: bool(crew.runs("s")))
    await crew.done()
    runs = crew.runs("s")
    assert [attempt for attempt, _ in runs] == [1, 2, 3, 4]
    waits = [after - before for (_, before), (_, after) in itertools.pairwise(runs)]
    # A machine may be late by less than two seconds at each of them.
    assert all(wait - 0.05 <= seconds < wait + 2 for wait, seconds in zip((1, 2, 4), waits, strict=True)), waits
    letter = (await letters_of(desk))["s"]
    assert [attempt.error_kind for attempt in letter.attempts] == ["connection_error"] * 4
    assert (letter.task, msgspec.json.decode(letter.arguments)) == ("stubborn", {"failures": 0, "seconds": 0.0})
    assert (letter.error.kind, letter.error.message) == ("connection_error", "the other side is away")


async def test_what_each_kind_of_failure_leads_to(crew: Crew, queue: TaskQueue, desk: DeadLetterDesk) -> None:
    crew.start(concurrency=10)
    await queue.send(work.wrong, Order(), task_id="permanent")
    await queue.send(work.slow, Order(), task_id="timeout")
    await queue.send(work.limited, Order(), task_id="retry-after")
    await queue.send(work.patient, Order(), task_id="signals")
    await queue.send(work.flaky, Order(failures=2), task_id="recovers")
    sent = time.time()
    await queue.send(work.flaky, Order(), task_id="late", delay=1.5)
    await crew.done()
    runs = {task_id: crew.runs(task_id) for task_id in ("permanent", "timeout", "retry-after", "signals")}
    assert {task_id: len(found) for task_id, found in runs.items()} == {
        "permanent": 1,
        "timeout": 3,
        "retry-after": 2,
        "signals": 2,
    }
    assert runs["retry-after"][1][1] - runs["retry-after"][0][1] >= 3.0
    assert runs["signals"][1][1] - runs["signals"][0][1] >= 1.0
    assert crew.runs("late")[0][1] - sent >= 1.5
    assert sorted(crew.diary.lines("done")) == [["late"], ["recovers"]]
    letters = await letters_of(desk)
    assert {task_id: letter.error.kind for task_id, letter in letters.items()} == {
        "permanent": "ValueError",
        "timeout": "timeout",
        "signals": "gave_up",
    }


async def test_a_task_that_waits_for_its_next_attempt_takes_no_place_in_a_worker(
    crew: Crew, queue: TaskQueue
) -> None:
    crew.start(concurrency=1)
    await queue.send(work.drowsy, Order(), task_id="waits")
    await crew.until("its first attempt", lambda: bool(crew.runs("waits")))
    await queue.send(work.flaky, Order(), task_id="other")
    await crew.until("the other one is done", lambda: crew.diary.lines("done") == [["other"]])
    await crew.done(left=1)
    assert len(crew.runs("waits")) == 1


async def test_a_task_that_succeeds_at_once_writes_no_journal_and_a_settled_one_leaves_none(
    crew: Crew, queue: TaskQueue, connection: NatsConnection
) -> None:
    bucket = bucket_stream(TASKS_BUCKET)
    crew.start()
    for number in range(20):
        await queue.send(work.flaky, Order(), task_id=f"good{number}")
    await crew.done()
    assert (await connection.js.stream_info(bucket)).state.last_seq == 0
    await queue.send(work.flaky, Order(failures=1), task_id="bad")
    await crew.done()

    async def dropped() -> bool:
        message = await connection.js.get_msg(bucket, (await connection.js.stream_info(bucket)).state.last_seq)
        return (message.headers or {}).get("KV-Operation") == "PURGE"

    await eventually("the journal is dropped", dropped)


async def test_a_task_sent_twice_under_one_id_runs_once(crew: Crew, queue: TaskQueue) -> None:
    for _ in range(3):
        await queue.send(work.flaky, Order(), task_id="once")
    crew.start()
    await crew.done()
    assert len(crew.runs("once")) == 1


async def test_a_worker_killed_between_any_two_steps_changes_neither_count_nor_outcome(
    crew: Crew, queue: TaskQueue, desk: DeadLetterDesk
) -> None:
    crew.start(3, concurrency=1, traps=True)  # one task at a time: a trap takes no other task with it
    failing = [f"{when}-{step}-fails" for step in STEPS for when in ("before", "after")]
    recovering = [f"{when}-{step}-recovers" for step in ("ack", "drop") for when in ("before", "after")]
    for task_id in failing:
        await queue.send(work.flaky, Order(failures=9), task_id=task_id)
    for task_id in recovering:
        await queue.send(work.flaky, Order(failures=1), task_id=task_id)
    await crew.done(within=200)
    await crew.until("every trap has snapped", lambda: crew.snapped() == {*failing, *recovering})
    letters = await letters_of(desk)
    counts = {task_id: len(letter.attempts) for task_id, letter in letters.items()}
    assert counts == dict.fromkeys(failing, 3)
    assert {line[0] for line in crew.diary.lines("done")} == set(recovering)
    assert await crew.letters() == len(failing)


async def test_a_worker_that_takes_over_keeps_to_the_wait(crew: Crew, queue: TaskQueue) -> None:
    crew.start(traps=True)
    # Its worker dies after the journal, before the message is told to wait: it comes again before that is over.
    await queue.send(work.unhurried, Order(), task_id="before-nak-waits")
    await crew.done()
    assert crew.snapped() == {"before-nak-waits"}
    first, second = [moment for _, moment in crew.runs("before-nak-waits")]
    assert second - first >= 4.0


async def test_a_frozen_worker_that_wakes_changes_no_count(
    crew: Crew, queue: TaskQueue, desk: DeadLetterDesk
) -> None:
    crew.start()
    await queue.send(work.flaky, Order(failures=9, seconds=0.5), task_id="cold")
    await crew.until("it runs", lambda: len(crew.runs("cold")) == 1)
    (frozen,) = crew.freeze()
    crew.add()
    await crew.until("another has begun the second attempt", lambda: len(crew.runs("cold")) >= 3)
    os.kill(frozen, signal.SIGCONT)
    await crew.done()
    attempts = [attempt for attempt, _ in crew.runs("cold")]
    # What was delivered to the frozen one and ran out is run by both; its outcome counts once.
    assert attempts == sorted(attempts)
    assert attempts[-1] == 3
    assert len((await letters_of(desk))["cold"].attempts) == 3


async def test_a_task_that_kills_each_worker_becomes_a_dead_letter_and_takes_no_other_with_it(
    crew: Crew, queue: TaskQueue, desk: DeadLetterDesk
) -> None:
    crew.start(lost_runs=3)  # fewer than in production, or this would take minutes
    await queue.send(work.deadly, Order(), task_id="killer")
    for number in range(10):
        await queue.send(work.flaky, Order(seconds=0.2), task_id=f"bystander{number}")
    await crew.done(within=200)
    letters = await letters_of(desk)
    assert {task_id: letter.error.kind for task_id, letter in letters.items()} == {"killer": "worker_lost"}
    assert {line[0] for line in crew.diary.lines("done")} == {f"bystander{number}" for number in range(10)}


async def test_a_task_nobody_knows_yet_waits_for_a_worker_that_does(
    crew: Crew, publisher: Publisher, connection: NatsConnection
) -> None:
    crew.start()
    await publisher.send(task_subject(None, "unborn"), encode_task("unborn", "u", b"{}"), message_id="u")
    await crew.until("it is offered and given back", lambda: "task is unknown here" in crew.log())
    assert await crew.messages(TASKS_STREAM) == 1
    assert await crew.letters() == 0
