"""A worker is never deaf: after each fault of NATS it takes the next check within ten seconds, every time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shared.contracts.names import CHECKS_STREAM, worker_consumer
from tests.chaos.lone_worker import LoneWorker, side_by_side
from tests.chaos.report import Record

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.timeout(900)]

BOUND_SECONDS = 10.0
REPETITIONS = 20
Fault = Callable[[LoneWorker], Awaitable[object]]


async def restart(lone: LoneWorker) -> None:
    await lone.nats.restart()


async def kill(lone: LoneWorker) -> None:
    await lone.nats.kill()
    await lone.nats.start()


async def lose_everything(lone: LoneWorker) -> None:
    await lone.nats.kill()
    lone.nats.wipe()
    await lone.nats.start()


async def freeze(lone: LoneWorker) -> None:
    lone.nats.freeze()
    await asyncio.sleep(30)
    lone.nats.thaw()


async def cut(lone: LoneWorker) -> None:
    await lone.proxy.cut()
    await asyncio.sleep(5)
    lone.proxy.heal()


async def black_hole(lone: LoneWorker) -> None:
    lone.proxy.black_hole()
    await asyncio.sleep(8)
    lone.proxy.heal()


async def delete_consumer(lone: LoneWorker) -> None:
    async with lone.jetstream() as js:
        await js.delete_consumer(CHECKS_STREAM, worker_consumer("default"))


async def delete_checks(lone: LoneWorker) -> None:
    async with lone.jetstream() as js:
        await js.delete_stream(CHECKS_STREAM)


# The freeze takes 30 s: five times each on four workers.
PLAN: tuple[tuple[str, Fault, int], ...] = (
    ("restart", restart, 1),
    ("SIGKILL", kill, 1),
    ("all data lost", lose_everything, 1),
    ("SIGSTOP, 30 s", freeze, 4),
    ("cut, 5 s", cut, 1),
    ("black hole, 8 s", black_hole, 1),
    ("consumer deleted", delete_consumer, 1),
    ("stream of the checks deleted", delete_checks, 1),
)


async def test_a_worker_takes_checks_again_within_ten_seconds_of_each_fault_of_nats(
    tmp_path: Path, record_property: Record
) -> None:
    number = sum(count for _, _, count in PLAN)
    workers = [LoneWorker(tmp_path / f"{index}") for index in range(number)]
    async with AsyncExitStack() as stack:
        await side_by_side(workers, stack)
        remaining = iter(workers)
        outcomes = await asyncio.gather(
            *(repeat(fault, [next(remaining) for _ in range(count)]) for _, fault, count in PLAN)
        )
    for (name, _, _), seconds in zip(PLAN, outcomes, strict=True):
        record_property(
            "figure",
            f"A check after NATS healed from: {name}: {sum(s <= BOUND_SECONDS for s in seconds)} of {len(seconds)} "
            f"within {BOUND_SECONDS:g} s, the slowest after {max(seconds):.2f} s.",
        )
    assert all(second <= BOUND_SECONDS for seconds in outcomes for second in seconds)


async def repeat(fault: Fault, workers: list[LoneWorker]) -> list[float]:
    """Seconds until the worker ran a check, for each of twenty repetitions spread over the workers."""

    async def often(lone: LoneWorker) -> list[float]:
        seconds = []
        for _ in range(REPETITIONS // len(workers)):
            await fault(lone)
            seconds.append(await lone.seconds_to_run_a_check())
        return seconds

    return [second for seconds in await asyncio.gather(*map(often, workers)) for second in seconds]
