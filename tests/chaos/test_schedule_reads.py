"""Schedules are never read as empty or in part, at any size of the bucket, idle or under load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import msgspec
import pytest

from shared.contracts.names import SCHEDULES_BUCKET
from shared.contracts.wire import Schedule
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import bucket_subject
from shared.messaging.publisher import Publisher
from shared.messaging.schedule_source import ResilientNATSScheduleSource
from shared.messaging.streams import ensure_streams
from shared.testing.nats import NatsServer
from tests.chaos.installation import clock
from tests.chaos.report import Record

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("under_load", [False, True], ids=["idle", "under load"])
@pytest.mark.parametrize("keys", [1, 100, 5_000])
async def test_no_read_is_empty_or_partial(
    keys: int, under_load: bool, nats: NatsServer, pytestconfig: pytest.Config, record_property: Record
) -> None:
    reads: int = pytestconfig.getoption("--reads", default=200)
    connection = await connect([nats.url], name="reader", buffer_writes=False)
    await ensure_streams(connection.js)
    monitors = [uuid4() for _ in range(keys)]
    async with Publisher(connection) as publisher:
        for monitor in monitors:
            await publisher.publish(bucket_subject(SCHEDULES_BUCKET, str(monitor)), encoded(monitor, 1))
        await publisher.send(bucket_subject(SCHEDULES_BUCKET, str(monitors[0])), encoded(monitors[0], 1))
    began = clock.monotonic()
    if under_load:
        async with writing(nats, monitors):
            found = [await read(connection) for _ in range(reads)]
    else:
        found = [await read(connection) for _ in range(reads)]
    await connection.close()
    empty, partial = found.count(0), sum(0 < number < keys for number in found)
    record_property(
        "figure",
        f"{reads} reads of {keys} schedules {'under load' if under_load else 'idle'}: {empty} empty, {partial} "
        f"partial, {(clock.monotonic() - began) / reads * 1000:.1f} ms each.",
    )
    assert (empty, partial) == (0, 0)


async def read(connection: NatsConnection) -> int:
    """How many schedules a source finds that has just started."""
    source = ResilientNATSScheduleSource(connection)
    await source.startup()
    found = len(await source.get_schedules())
    await source.shutdown()
    return found


@asynccontextmanager
async def writing(nats: NatsServer, monitors: list[UUID]) -> AsyncIterator[None]:
    """Somebody changes schedules without a pause."""
    connection = await connect([nats.url], name="writer", buffer_writes=False)

    async def write(publisher: Publisher) -> None:
        revision = 1
        while not is_cancelled():
            revision += 1
            monitor = random.choice(monitors)
            await publisher.publish(bucket_subject(SCHEDULES_BUCKET, str(monitor)), encoded(monitor, revision))

    async with Publisher(connection, window=256) as publisher:
        writer = asyncio.create_task(write(publisher))
        try:
            yield
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
    await connection.close()


def encoded(monitor_id: UUID, revision: int) -> bytes:
    return msgspec.json.encode(
        Schedule(monitor_id, uuid4(), revision, 60_000, 1_800_000_000_000, ("default",), msgspec.Raw(b"{}"))
    )
