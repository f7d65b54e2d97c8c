"""The tasks of the tests, and a worker process that runs them: started often, and killed at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
from nats.aio.msg import Msg

from shared.domain.clock import SystemClock
from shared.messaging.connect import connect
from shared.messaging.publisher import Publisher
from shared.tasks import execution
from shared.tasks.declaration import Task, TaskContext, TaskSet
from shared.tasks.errors import GiveUp, RetryLater
from shared.tasks.journal import Journals
from shared.tasks.letter_box import LetterBox
from shared.tasks.policy import RetryPolicy
from shared.tasks.worker import TaskWorker

STEPS = ("run", "write", "nak", "put_task", "ack", "drop")


class Order(msgspec.Struct):
    """``failures`` attempts fail before one succeeds; each takes ``seconds``."""

    failures: int = 0
    seconds: float = 0.0


class Diary:
    """One line for each thing that happened, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, *words: object) -> None:
        line = " ".join(map(str, words))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def lines(self, first: str) -> list[list[str]]:
        """Lines that begin with this word, without it."""
        if not self._path.exists():
            return []
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == first]


class RefusedError(Exception):
    """What an HTTP client raises: a status, and headers."""

    def __init__(self, status_code: int, **headers: str) -> None:
        super().__init__(f"answered {status_code}")
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


tasks: TaskSet[Diary] = TaskSet()
QUICK = RetryPolicy(attempts=3, delay=0.05, jitter=0)


def _begin(context: TaskContext[Diary]) -> None:
    context.resources.note("run", context.task_id, context.attempt, time.time())


@tasks.declare(
    "stubborn",
    argument=Order,
    timeout=5,
    retry=RetryPolicy(attempts=4, delay=1, factor=2, jitter=0),
    idempotent=True,
)
async def stubborn(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    raise ConnectionError("the other side is away")


@tasks.declare("flaky", argument=Order, timeout=5, retry=QUICK, idempotent=True)
async def flaky(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    await asyncio.sleep(order.seconds)
    if context.attempt <= order.failures:
        raise ConnectionError(f"attempt {context.attempt} fails")
    context.resources.note("done", context.task_id)


@tasks.declare(
    "unhurried",
    argument=Order,
    timeout=5,
    retry=RetryPolicy(attempts=2, delay=4, jitter=0),
    idempotent=True,
)
async def unhurried(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    await asyncio.sleep(order.seconds)
    raise ConnectionError("the other side is away")


@tasks.declare(
    "drowsy",
    argument=Order,
    timeout=5,
    retry=RetryPolicy(attempts=2, delay=600, jitter=0),
    idempotent=True,
)
async def drowsy(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    raise ConnectionError("the other side is away")


@tasks.declare("wrong", argument=Order, timeout=5, retry=QUICK, idempotent=True)
async def wrong(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    raise ValueError("this never works")


@tasks.declare("slow", argument=Order, timeout=0.2, retry=QUICK, idempotent=True)
async def slow(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    await asyncio.sleep(30)


@tasks.declare("limited", argument=Order, timeout=5, retry=QUICK, idempotent=True)
async def limited(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    if context.attempt == 1:
        raise RefusedError(429, Retry_After="3")


@tasks.declare("patient", argument=Order, timeout=5, retry=QUICK, idempotent=True)
async def patient(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    if context.attempt == 1:
        raise RetryLater("not yet", after=1.0)
    raise GiveUp("never")


@tasks.declare("deadly", argument=Order, timeout=5)
async def deadly(order: Order, context: TaskContext[Diary]) -> None:
    _begin(context)
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Job:
    """What a worker process is told. With ``trap`` it kills itself once for each step named by a task's id."""

    url: str
    diary: Path
    concurrency: int = 4
    trap: Path | None = None
    lost_runs: int = execution.LOST_RUNS


def run(job: Job) -> None:
    """The process."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(job.diary.with_suffix(".log").open("a")))
    execution.LOST_RUNS = job.lost_runs  # type: ignore[misc]  # a test has no hours for the real bound
    if job.trap:
        _set_traps(job.trap)
    asyncio.run(_work(job))


async def _work(job: Job) -> None:
    connection = await connect([job.url], name="task worker", buffer_writes=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Publisher(connection) as publisher:
        worker = TaskWorker(connection, publisher, SystemClock(), concurrency=job.concurrency)
        worker.add(tasks, Diary(job.diary))
        await worker.listen(stopping)
        await worker.close()
    await connection.close()


class _Traps:
    """Kills this process before or after a step of a task named ``<when>-<step>-…``, once per task."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def step(self, when: str, step: str, task_id: str) -> None:
        mark = self._folder / task_id
        if f"{when}-{step}-" in task_id and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, owner: type[Any], step: str, id_of: Callable[..., str]) -> None:
        original = getattr(owner, step)

        async def trapped(this: Any, *args: Any, **kwargs: Any) -> Any:
            task_id = id_of(this, *args, **kwargs)
            self.step("before", step, task_id)
            answer = await original(this, *args, **kwargs)
            if isinstance(this, Msg):
                await this._client._flush_pending(force_flush=True)  # it is only buffered so far
            self.step("after", step, task_id)
            return answer

        setattr(owner, step, trapped)

    def wrap_runs(self, task: Task[Order, Diary]) -> None:
        function = task.function

        async def trapped(order: Order, context: TaskContext[Diary]) -> None:
            self.step("before", "run", context.task_id)
            try:
                await function(order, context)
            finally:
                self.step("after", "run", context.task_id)

        object.__setattr__(task, "function", trapped)


def _set_traps(folder: Path) -> None:
    traps = _Traps(folder)
    traps.wrap_runs(flaky)
    for step in ("ack", "nak"):
        traps.wrap(Msg, step, lambda message, **_: msgspec.json.decode(message.data)["task_id"])
    for step in ("write", "drop"):
        traps.wrap(Journals, step, lambda _, key, *__: key.partition(".")[0])
    traps.wrap(LetterBox, "put_task", lambda _, __, **letter: letter["task_id"])
