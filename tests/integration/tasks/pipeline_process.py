"""A worker with pipelines, as a process of its own. It can be told to kill itself at an exact moment.

Arguments: the address of NATS, the file in which steps write down that they ran, and after how many writes of a
record the process dies (0: never).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shared.domain.clock import SystemClock
from shared.messaging.connect import connect
from shared.messaging.publisher import Publisher
from shared.tasks.declaration import Task, TaskSet
from shared.tasks.pipeline import Pipeline, Step
from shared.tasks.pipeline_journal import PipelineJournal, PipelineJournals
from shared.tasks.pipeline_record import PipelineRecord
from shared.tasks.pipeline_task import StepContext, StepFunction, pipeline_task
from shared.tasks.policy import RetryNotice, RetryPolicy
from shared.tasks.worker import TaskWorker


class Order(msgspec.Struct):
    number: int


@dataclass(frozen=True)
class Resources:
    journals: PipelineJournals
    log: Path


async def hook(notice: RetryNotice) -> None:
    with Path(sys.argv[2]).with_suffix(".hooks").open("a") as hooks:
        hooks.write(f"{notice.task} {notice.task_id} {notice.attempt} {type(notice.error).__name__}\n")
    raise RuntimeError("a hook that fails changes nothing")


PLACE = Pipeline(
    (
        Step("reserve"),
        Step("charge", retry=RetryPolicy(attempts=3, delay=0.3, factor=1.0, jitter=0.0, on_retry=hook)),
        Step("ship", attempt_timeout=0.5),
        Step("tell", on_error="continue"),
    ),
    timeout=60,
    compensation=Step("refund"),
    cleanup=Step("tidy"),
)


def writes_down(
    name: str, work: Callable[[Order, StepContext[Resources]], object]
) -> StepFunction[Order, Resources]:
    async def step(order: Order, context: StepContext[Resources]) -> object:
        with context.task.resources.log.open("a") as log:
            log.write(f"{order.number} {name}\n")
        return work(order, context)

    return step


def charge(order: Order, context: StepContext[Resources]) -> object:
    if order.number % 2 and context.attempt < 3:
        raise ConnectionError("the bank is away")
    return {"receipt": context.earlier["reserve"].value}


def ship(order: Order, _: StepContext[Resources]) -> object:
    if order.number >= 10:
        raise ValueError("no such address")
    return None


def declared() -> tuple[TaskSet[Resources], Task[Order, Resources]]:
    tasks: TaskSet[Resources] = TaskSet()
    work: dict[str, Callable[[Order, StepContext[Resources]], object]] = {
        "reserve": lambda order, _: order.number,
        "charge": charge,
        "ship": ship,
        "tell": lambda *_: None,
        "refund": lambda _, context: context.earlier["charge"].value,
        "tidy": lambda *_: None,
    }
    place = pipeline_task(
        tasks,
        "place_order",
        PLACE,
        {name: writes_down(name, function) for name, function in work.items()},
        argument=Order,
        journals=lambda resources: resources.journals,
        idempotent=True,
    )
    return tasks, place


def die_after(writes: int) -> None:
    """Have this process killed when it has written so many records, before it does anything else."""
    save, left = PipelineJournal.save, writes

    async def save_and_die(self: PipelineJournal, record: PipelineRecord) -> None:
        nonlocal left
        await save(self, record)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    PipelineJournal.save = save_and_die  # type: ignore[method-assign]  # the moment of death is all this is for


async def main(url: str, log: Path, writes: int) -> None:
    if writes:
        die_after(writes)
    connection = await connect([url], name="worker", buffer_writes=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    clock = SystemClock()
    async with Publisher(connection) as publisher:
        worker = TaskWorker(connection, publisher, clock, stop_grace=2.0)
        worker.add(declared()[0], Resources(PipelineJournals(connection, publisher, clock), log))
        await worker.listen(stopping)
        await worker.close()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
