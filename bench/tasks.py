"""What the layer of tasks costs: no-op tasks with it, and on bare taskiq-nats, in the same run.

``python -m bench.tasks [tasks] [rounds] [soak]``: a nats-server of its own; the tasks are in the stream before the
clock starts. Each round runs both sides, in turns first, in fresh connections; printed are the medians of CPU time
of this process and of wall time per task, and the memory before and after ``soak`` further tasks with the layer.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import structlog
import uvloop
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from taskiq.acks import AcknowledgeType
from taskiq.receiver import Receiver
from taskiq_nats import PullBasedJetStreamBroker

from shared.contracts.names import TASKS_STREAM
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.tasks.declaration import TaskContext, TaskSet
from shared.tasks.policy import RetryPolicy
from shared.tasks.queue import TaskQueue
from shared.tasks.worker import TaskWorker
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually

BATCH = 64
CONCURRENCY = 100
AT_ONCE = 200

Side = Callable[[str, int, str], Awaitable[tuple[float, float]]]


class Order(msgspec.Struct):
    """About as much as a delivery says."""

    delivery_id: str
    channel: str = "webhook"
    attempt: int = 1


class Countdown:
    """Set when so many tasks have run."""

    def __init__(self, number: int) -> None:
        self.left, self.over = number, asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.over.set()


tasks: TaskSet[Countdown] = TaskSet()


@tasks.declare(
    "nothing",
    argument=Order,
    timeout=10,
    retry=RetryPolicy(attempts=5, delay=5),
    idempotent=True,
)
async def nothing(_: Order, context: TaskContext[Countdown]) -> None:
    context.resources.one()


async def until_over(countdown: Countdown, work: Awaitable[Any]) -> tuple[float, float]:
    """CPU and wall seconds until every task has run."""
    cpu, wall = time.process_time(), time.perf_counter()
    working = asyncio.ensure_future(work)
    await countdown.over.wait()
    spent = time.process_time() - cpu, time.perf_counter() - wall
    del working
    return spent


async def settled(connection: NatsConnection) -> bool:
    return int((await connection.js.stream_info(TASKS_STREAM)).state.messages) == 0


async def layered(url: str, number: int, run: str) -> tuple[float, float]:
    """Our queue, worker and declaration."""
    async with AsyncExitStack() as stack:
        connection = await connect([url], name="layered", buffer_writes=True)
        stack.push_async_callback(connection.close)
        await ensure_streams(connection.js)
        publisher = await stack.enter_async_context(Publisher(connection))
        queue = TaskQueue(publisher, SystemClock())
        for start in range(0, number, AT_ONCE):
            await asyncio.gather(
                *(
                    queue.send(nothing, Order(f"{run}-{n}"), task_id=f"{run}-{n}")
                    for n in range(start, start + AT_ONCE)
                )
            )
        countdown, stopping = Countdown(number), asyncio.Event()
        worker = TaskWorker(connection, publisher, SystemClock(), concurrency=CONCURRENCY)
        worker.add(tasks, countdown)
        listening = asyncio.create_task(worker.listen(stopping))
        spent = await until_over(countdown, listening)
        await eventually("every task is settled", lambda: settled(connection))
        stopping.set()
        await listening
        await worker.close()
        return spent


async def bare(url: str, number: int, run: str) -> tuple[float, float]:
    """The stock broker with the same batch and concurrency, acknowledged after the task."""
    stream = f"BARE-{run}"
    broker = PullBasedJetStreamBroker(
        [url],
        subject=f"bare.{run}",
        stream_name=stream,
        stream_config=StreamConfig(retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE),
        consumer_config=ConsumerConfig(durable_name="bare", ack_wait=60, max_ack_pending=20_000),
        durable="bare",
        pull_consume_batch=BATCH,
        pull_consume_timeout=1,
    )
    countdown, stopping = Countdown(number), asyncio.Event()

    async def body(_: dict[str, Any]) -> None:
        countdown.one()

    task = broker.register_task(body, task_name="nothing")
    await broker.startup()
    for start in range(0, number, AT_ONCE):
        await asyncio.gather(
            *(task.kiq(msgspec.to_builtins(Order(f"{run}-{n}"))) for n in range(start, start + AT_ONCE))
        )
    receiver = Receiver(
        broker,
        max_async_tasks=CONCURRENCY,
        validate_params=False,
        run_startup=False,
        ack_type=AcknowledgeType.WHEN_EXECUTED,
    )
    listening = asyncio.create_task(receiver.listen(stopping))
    spent = await until_over(countdown, listening)
    stopping.set()
    await listening
    await broker.js.delete_stream(stream)
    await broker.shutdown()
    return spent


def resident_mib() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


async def measure(number: int, rounds: int, soak: int) -> None:
    sides: dict[str, Side] = {"layer": layered, "taskiq-nats": bare}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder)) as server:
            for side in sides.values():
                await side(server.url, 2 * AT_ONCE, "warm")
            for turn in range(rounds):
                for name in sorted(sides, reverse=bool(turn % 2)):
                    spent[name].append(await sides[name](server.url, number, f"{turn}"))
            report(number, spent)
            await layered(server.url, number, "settle")
            before = resident_mib()
            for part in range(max(soak // number, 1)):
                await layered(server.url, number, f"soak{part}")
            print(f"resident memory: {before:.1f} MiB, after {soak} further tasks {resident_mib():.1f} MiB")


def report(number: int, spent: dict[str, list[tuple[float, float]]]) -> None:
    cpu = {name: statistics.median(c for c, _ in rows) * 1e6 / number for name, rows in spent.items()}
    wall = {name: statistics.median(w for _, w in rows) * 1e6 / number for name, rows in spent.items()}
    for name in spent:
        print(f"{name:12}  {cpu[name]:6.1f} µs CPU  {wall[name]:6.1f} µs wall per task")
    ratios = [medians["layer"] / medians["taskiq-nats"] for medians in (cpu, wall)]
    print(f"layer / taskiq-nats: {ratios[0]:.2f} in CPU, {ratios[1]:.2f} in wall time")


def main(number: int = 10_000, rounds: int = 5, soak: int = 100_000) -> None:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.getLogger("taskiq").setLevel(logging.WARNING)
    gc.freeze()  # as our processes do
    gc.set_threshold(20_000, 20, 50)
    uvloop.run(measure(number, rounds, soak))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
