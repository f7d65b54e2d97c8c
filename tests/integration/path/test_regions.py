"""Which regions are served is seen from the consumers of a real queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from shared.contracts.names import CHECKS_STREAM, check_subject, worker_consumer
from shared.domain.region import PLATFORM_REGION
from shared.messaging.connect import NatsConnection
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_consumer
from shared.services.regions import RegionWatch
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually

NOBODY = "no worker serves region 'xx', so nothing is checked there; served are: "


@asynccontextmanager
async def worker(connection: NatsConnection, region: str) -> AsyncIterator[None]:
    """Asks for checks of a region, as a worker does that has nothing to do."""

    async def ensure() -> None:
        await ensure_consumer(connection.js, region)

    await ensure()
    async with PullLoop(connection, CHECKS_STREAM, worker_consumer(region), ensure=ensure) as pull:

        async def work() -> None:
            async for message in pull.messages():
                await message.ack()

        working = asyncio.create_task(work())
        yield
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def looked(watch: RegionWatch, times: int = 3) -> RegionWatch:
    for _ in range(times):
        await watch.look()
    return watch


async def test_a_region_without_a_worker_is_named_with_those_that_have_one(connection: NatsConnection) -> None:
    await ensure_consumer(connection.js, "gone")  # a worker was there once
    watch = RegionWatch(connection)
    async with worker(connection, "eu"), worker(connection, "us"), worker(connection, PLATFORM_REGION):

        async def all_seen() -> bool:
            return not (await looked(watch)).warnings(["eu", "us"])

        await eventually("both are seen", all_seen)
        assert watch.warnings(["eu", "xx"]) == [NOBODY + "eu, us"]
        assert len(watch.warnings(["gone", "xx", "us"])) == 2


async def test_where_there_is_no_worker_at_all_that_is_said(connection: NatsConnection) -> None:
    assert (await looked(RegionWatch(connection))).warnings(["xx"]) == [NOBODY + "none"]


async def test_a_worker_that_is_too_busy_to_ask_is_no_absent_one(connection: NatsConnection) -> None:
    await ensure_consumer(connection.js, "eu")
    watch = RegionWatch(connection)
    pull = await connection.js.pull_subscribe_bind(worker_consumer("eu"), CHECKS_STREAM)
    for _ in range(4):
        await connection.js.publish(check_subject("eu", uuid4()), b"{}")
        await pull.fetch(1)
        await watch.look()
    assert watch.warnings(["eu"]) == []


@pytest.mark.parametrize("looks", [0, 1])
async def test_at_first_nothing_is_known_and_nothing_said(looks: int, connection: NatsConnection) -> None:
    assert (await looked(RegionWatch(connection), looks)).warnings(["xx"]) == []


async def test_while_the_queue_is_away_nothing_is_said(
    connection: NatsConnection, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.services.regions.LOOK_SECONDS", 0.05)
    watch = await looked(RegionWatch(connection))
    running = asyncio.create_task(watch.run())

    async def is_silent() -> bool:
        return watch.warnings(["xx"]) == []

    async def speaks() -> bool:
        return watch.warnings(["xx"]) == [NOBODY + "none"]

    await eventually("it is said", speaks, within=60)
    await nats.stop()
    await eventually("nothing is said", is_silent, within=60)
    await nats.start()
    await eventually("it is said again", speaks, within=60)
    while not running.done():
        running.cancel()
        await asyncio.wait({running}, timeout=0.5)
