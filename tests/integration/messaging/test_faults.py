"""Whatever happens to server, network, consumer or stream: pulling and mirroring come back by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from shared.contracts.names import CHECKS_STREAM, SCHEDULES_BUCKET
from shared.messaging import bucket_watch
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_consumer, ensure_streams
from shared.testing.nats import FlakyProxy, NatsServer
from tests.integration.messaging.conftest import until
from tests.integration.messaging.reading import CONSUMER, reading, send_until_stored


@pytest.fixture
async def through_proxy(server: NatsServer, proxy: FlakyProxy) -> AsyncIterator[NatsConnection]:
    """A worker's connection through the proxy, with streams and consumer declared."""
    connected = await connect([proxy.url], name="worker", buffer_writes=True)
    await ensure_streams(connected.js)
    await ensure_consumer(connected.js, "eu")
    yield connected
    await connected.close()


@pytest.fixture
async def sender(server: NatsServer) -> AsyncIterator[Publisher]:
    """A publisher that does not share the worker's broken network."""
    connected = await connect([server.url], name="sender", buffer_writes=False)
    async with Publisher(connected) as publisher:
        yield publisher
    await connected.close()


Fault = Callable[[NatsServer, FlakyProxy, NatsConnection], Awaitable[object]]


async def restart(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await server.restart()


async def kill(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await server.kill()
    await server.start()


async def lose_all_data(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await server.kill()
    server.wipe()
    await server.start()


async def freeze(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    server.freeze()
    await asyncio.sleep(6)
    server.thaw()


async def delete_consumer(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await connection.js.delete_consumer(CHECKS_STREAM, CONSUMER)


async def delete_stream(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await connection.js.delete_stream(CHECKS_STREAM)


async def cut(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    await proxy.cut()
    proxy.heal()


async def black_hole(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    proxy.black_hole()
    await until(lambda: not connection.is_connected, within=WITHIN_SECONDS, what="noticing the black hole")
    proxy.heal()


async def delete_the_mirrors_consumer(server: NatsServer, proxy: FlakyProxy, connection: NatsConnection) -> None:
    stream = bucket_stream(SCHEDULES_BUCKET)
    for consumer in await connection.js.consumers_info(stream):
        await connection.js.delete_consumer(stream, consumer.name)


# What the client is told of is mended at once, and no rule about silence has to help.
TOLD: tuple[Fault, ...] = (restart, kill, lose_all_data, delete_consumer, delete_stream, cut)
SILENT: tuple[Fault, ...] = (freeze, delete_the_mirrors_consumer, black_hole)
WITHIN_SECONDS = 30
LONGER_SECONDS = 300.0


Following = tuple[NatsConnection, dict[str, float]]


@pytest.fixture
def following(fault: Fault, through_proxy: NatsConnection, monkeypatch: pytest.MonkeyPatch) -> Following:
    """The connection that breaks, and how long a reader over it bears silence."""
    if fault in SILENT:
        return through_proxy, {}
    monkeypatch.setattr(bucket_watch, "HEARTBEAT_SECONDS", LONGER_SECONDS)
    return through_proxy, {"heartbeat": LONGER_SECONDS, "expires": 3 * LONGER_SECONDS}


@pytest.mark.parametrize("fault", [*TOLD, *SILENT], ids=lambda fault: fault.__name__)
async def test_messages_and_keys_written_after_a_fault_arrive_soon(
    fault: Fault, server: NatsServer, proxy: FlakyProxy, following: Following, sender: Publisher
) -> None:
    through_proxy, patience = following
    mirror = KeyValueMirror(through_proxy, SCHEDULES_BUCKET, audit_every=LONGER_SECONDS)
    mirroring = asyncio.create_task(mirror.run())
    async with reading(through_proxy, **patience) as reader:
        await send_until_stored(sender, b"before")
        await send_until_stored(sender, b"1", subject=bucket_subject(SCHEDULES_BUCKET, "before"))
        await until(
            lambda: reader.bodies == [b"before"] and mirror.data == {"before": b"1"}, what="the state before"
        )
        await fault(server, proxy, through_proxy)
        await send_until_stored(sender, b"after")
        await send_until_stored(sender, b"2", subject=bucket_subject(SCHEDULES_BUCKET, "after"))
        await until(lambda: b"after" in reader.bodies, within=WITHIN_SECONDS, what="the message after the fault")
        await until(
            lambda: mirror.data == {"before": b"1", "after": b"2"},
            within=WITHIN_SECONDS,
            what="the key after the fault",
        )
        assert not reader.task.done()
        assert not mirroring.done()
    mirroring.cancel()
    await asyncio.gather(mirroring, return_exceptions=True)


async def test_the_silence_rule_alone_brings_a_loop_back(
    server: NatsServer, through_proxy: NatsConnection, sender: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reading(through_proxy, heartbeat=0.5) as reader:
        await send_until_stored(sender, b"before")
        await until(lambda: reader.bodies == [b"before"], what="the message before the fault")
        monkeypatch.setattr(through_proxy, "_listeners", [])
        await server.kill()
        await server.start()
        await send_until_stored(sender, b"after")
        await until(lambda: b"after" in reader.bodies, what="the message after the restart")
