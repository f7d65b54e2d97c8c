"""One delivery after the other, in this process: what is written down, told and counted of each."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg
from prometheus_client import REGISTRY

from shared.contracts.names import TASKS_STREAM
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.declaration import Task, TaskContext
from shared.tasks.execution import Delivery, TaskRunner
from shared.tasks.journal import Journal, Journals
from shared.tasks.letter_box import LetterBox
from shared.tasks.letters import EVERYTHING, Attempt
from shared.tasks.policy import RetryNotice, RetryPolicy
from shared.tasks.queue import TaskQueue
from tests.integration.tasks import work
from tests.integration.tasks.work import Order


async def fail(order: Order, context: TaskContext[None]) -> None:
    raise ConnectionError("no")


async def test_a_failed_attempt_is_told_and_counted_with_the_wait_behind_it(
    queue: TaskQueue, connection: NatsConnection, publisher: Publisher
) -> None:
    told: list[RetryNotice] = []

    async def hook(notice: RetryNotice) -> None:
        told.append(notice)
        raise RuntimeError("a hook that fails changes nothing")

    policy = RetryPolicy(attempts=2, delay=40, jitter=0, on_retry=hook)
    task = Task("told", fail, Order, 30, policy, idempotent=True)
    await queue.send(task, Order(), task_id="x")
    subscription = await connection.js.pull_subscribe_bind("tasks", TASKS_STREAM)
    (message,) = await subscription.fetch(1)
    runner = TaskRunner(Journals(connection, publisher), LetterBox(publisher), SystemClock(), lambda _: None)
    await runner.deliver(Delivery(task, None, message, "x", {}))
    await subscription.unsubscribe()
    (notice,) = told
    assert (notice.task, notice.task_id, notice.attempt, notice.delay) == ("told", "x", 1, 40)
    assert isinstance(notice.error, ConnectionError)
    assert message.is_acked, "it is told to come again"
    assert REGISTRY.get_sample_value("tocsin_task_retries_total", {"task": "told"}) == 1
    spent = {
        on: REGISTRY.get_sample_value("tocsin_task_seconds_total", {"task": "told", "spent_on": on})
        for on in ("retries", "work")
    }
    assert spent == {"retries": pytest.approx(40, abs=10), "work": 0}


async def test_the_budget_counts_from_the_first_attempt_on(
    queue: TaskQueue, connection: NatsConnection, publisher: Publisher, desk: DeadLetterDesk
) -> None:
    clock, journals = SystemClock(), Journals(connection, publisher)
    runner = TaskRunner(journals, LetterBox(publisher), clock, lambda _: None)
    policy = RetryPolicy(attempts=9, delay=1, jitter=0, factor=1, budget=900)
    task = Task("bounded", fail, Order, 30, policy, idempotent=True)
    await queue.send(task, Order(), task_id="x")
    subscription = await connection.js.pull_subscribe_bind("tasks", TASKS_STREAM)
    (first,) = await subscription.fetch(1)
    await first.nak()
    (message,) = await subscription.fetch(1, timeout=10)
    delivery = Delivery(task, None, message, "x", {})
    failed = Attempt(clock.now_ms() - 899_500, "connection_error", "no", "worker:1")
    await journals.write(delivery.key, Journal((failed,)), 0, 0)
    await runner.deliver(delivery)
    await subscription.unsubscribe()
    (letter,) = await desk.page(EVERYTHING)
    assert len(letter.attempts) == 2, "the third of nine would begin after the budget"


async def test_the_outcome_of_a_delivery_that_another_worker_took_over_is_dropped(
    queue: TaskQueue, connection: NatsConnection, publisher: Publisher
) -> None:
    journals = Journals(connection, publisher)
    let_go: list[Msg] = []
    runner = TaskRunner(journals, LetterBox(publisher), SystemClock(), let_go.append)
    thaw, gate = asyncio.Event(), [True]

    async def fail_late(order: Order, context: TaskContext[None]) -> None:
        if gate.pop():
            await thaw.wait()
        raise ConnectionError("no")

    task = Task("unhurried", fail_late, Order, 30, work.unhurried.retry, idempotent=True)
    gate.insert(0, False)
    await queue.send(task, Order(), task_id="x")
    subscription = await connection.js.pull_subscribe_bind("tasks", TASKS_STREAM)
    (first,) = await subscription.fetch(1)
    slow = asyncio.create_task(runner.deliver(Delivery(task, None, first, "x", {})))
    (second,) = await subscription.fetch(1, timeout=10)
    assert second.metadata.num_delivered == 2
    delivery = Delivery(task, None, second, "x", {})
    await runner.deliver(delivery)
    assert second.is_acked
    thaw.set()
    await slow
    assert let_go == [first]
    assert not first.is_acked
    assert await journals.read(delivery.key) == delivery.entry
    assert len(delivery.entry.journal.attempts) == 1
    await subscription.unsubscribe()


async def test_of_the_tasks_in_hand_when_workers_died_a_process_runs_one_at_a_time(
    queue: TaskQueue, connection: NatsConnection, publisher: Publisher
) -> None:
    journals = Journals(connection, publisher)
    runner = TaskRunner(journals, LetterBox(publisher), SystemClock(), let_go=lambda _: None)
    begun, gate = asyncio.Queue[str](), asyncio.Event()

    async def wait(order: Order, context: TaskContext[None]) -> None:
        begun.put_nowait(context.task_id)
        await gate.wait()

    task = Task("unhurried", wait, Order, 30, work.unhurried.retry, idempotent=True)
    subscription = await connection.js.pull_subscribe_bind("tasks", TASKS_STREAM)

    async def suspects(count: int) -> list[Delivery]:
        messages: list[Msg] = []
        while len(messages) < count:
            messages += await subscription.fetch(count - len(messages), timeout=10)
        return [Delivery(task, None, message, str(message.metadata.sequence.stream), {}) for message in messages]

    for name in ("a", "b"):
        await queue.send(task, Order(), task_id=name)
    for delivery in await suspects(2):
        await delivery.message.nak()
    first, second = await suspects(2)
    for delivery in (first, second):
        await journals.write(delivery.key, Journal(starts=2, held_back=True), 0, 0)
    running = asyncio.create_task(runner.deliver(first))
    assert await begun.get() == first.task_id
    await runner.deliver(second)
    assert begun.empty()
    assert (second.entry.journal.starts, second.entry.journal.held_back) == (2, True)
    gate.set()
    await running
    (again,) = await suspects(1)
    await runner.deliver(again)
    assert (await begun.get(), again.entry.journal.starts) == (second.task_id, 3)
    await subscription.unsubscribe()
