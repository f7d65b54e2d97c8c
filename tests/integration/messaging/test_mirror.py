"""The mirror equals its bucket, says when it does not, and lets nothing vanish by accident."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.js.kv import KeyValue
from structlog.testing import capture_logs

from shared.contracts.names import LEADER_BUCKET, SCHEDULES_BUCKET
from shared.messaging import mirror as mirror_module
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.testing.nats import FlakyProxy, NatsServer
from tests.integration.messaging.conftest import until

STREAM = bucket_stream(SCHEDULES_BUCKET)


@asynccontextmanager
async def mirroring(connection: NatsConnection, **settings: Any) -> AsyncIterator[KeyValueMirror]:
    mirror = KeyValueMirror(connection, SCHEDULES_BUCKET, **settings)
    task = asyncio.create_task(mirror.run())
    yield mirror
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def bucket(connection: NatsConnection) -> KeyValue:
    """With more patience for a busy machine than processes have: thousands of keys are written through it."""
    return await connection.client.jetstream(timeout=60).key_value(SCHEDULES_BUCKET)


async def fill(bucket: KeyValue, count: int) -> dict[str, bytes]:
    content = {f"key-{number}": str(number).encode() for number in range(count)}
    places = asyncio.Semaphore(50)

    async def put(key: str, value: bytes) -> None:
        async with places:
            await bucket.put(key, value)

    await asyncio.gather(*(put(key, value) for key, value in content.items()))
    return content


@asynccontextmanager
async def busy_writer(server: NatsServer, count: int) -> AsyncIterator[Publisher]:
    """Somebody overwrites keys as fast as the server takes it."""
    other = await connect([server.url], name="writer", buffer_writes=False)

    async def write(publisher: Publisher) -> None:
        while not is_cancelled():
            key = f"key-{random.randrange(count)}"
            await publisher.publish(bucket_subject(SCHEDULES_BUCKET, key), b"new" * 70)

    async with Publisher(other, window=256) as publisher:
        writer = asyncio.create_task(write(publisher))
        try:
            yield publisher
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
    await other.close()


async def first_size(connection: NatsConnection) -> int:
    """How many keys a mirror held at the moment at which it called itself complete."""
    mirror = KeyValueMirror(connection, SCHEDULES_BUCKET)
    sizes: list[int] = []
    mirror.add_listener(lambda *_: sizes.append(len(mirror.data)) if not sizes else None)
    following = asyncio.create_task(mirror.run())
    await mirror.ready.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    return sizes[0]


@pytest.mark.parametrize(("count", "loads"), [(1, 100), (100, 100), (5000, 40)])
async def test_loads_under_a_busy_writer_never_miss_a_key(
    count: int, loads: int, server: NatsServer, connection: NatsConnection, bucket: KeyValue
) -> None:
    await fill(bucket, count)
    async with busy_writer(server, count) as publisher:
        for _ in range(loads):
            assert await first_size(connection) == count
        assert publisher.stored > loads
    assert (await connection.js.stream_info(STREAM)).state.consumer_count == 0


async def test_five_thousand_keys_are_loaded_completely(connection: NatsConnection, bucket: KeyValue) -> None:
    content = await fill(bucket, 5000)
    async with mirroring(connection) as mirror:
        await asyncio.wait_for(mirror.ready.wait(), 30)
        assert mirror.data == content


async def test_changes_are_reported_in_order_and_only_when_something_changed(
    connection: NatsConnection, bucket: KeyValue
) -> None:
    await bucket.put("a", b"1")
    changes: list[tuple[str, bytes | None]] = []
    mirror = KeyValueMirror(connection, SCHEDULES_BUCKET)
    mirror.add_listener(lambda key, value: changes.append((key, value)))
    task = asyncio.create_task(mirror.run())
    await mirror.ready.wait()
    await bucket.put("b", b"2")
    await bucket.put("b", b"2")
    await bucket.put("a", b"3")
    await bucket.delete("a")
    await bucket.purge("b")
    await bucket.delete("never-there")
    await bucket.put("end", b"")
    await until(lambda: changes[-1:] == [("end", b"")])
    assert changes == [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", None), ("b", None), ("end", b"")]
    assert mirror.data == {"end": b""}
    await until(lambda: mirror.staleness < 6, what="a look at the bucket")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_expired_key_vanishes(connection: NatsConnection) -> None:
    mirror = KeyValueMirror(connection, LEADER_BUCKET)
    task = asyncio.create_task(mirror.run())
    await connection.js.publish(bucket_subject(LEADER_BUCKET, "key"), b"value", msg_ttl=1)
    await until(lambda: mirror.data == {"key": b"value"})
    await until(lambda: mirror.data == {}, what="the expiry")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_re_created_bucket_keeps_its_keys_until_it_is_refilled(
    connection: NatsConnection, bucket: KeyValue
) -> None:
    content = await fill(bucket, 10)
    async with mirroring(connection, audit_every=0.5) as mirror:
        await mirror.ready.wait()
        changes: list[tuple[str, bytes | None]] = []
        mirror.add_listener(lambda key, value: changes.append((key, value)))
        with capture_logs() as logs:
            await connection.js.delete_stream(STREAM)
            await ensure_streams(connection.js)
            await until(lambda: mirror.rebuilds == 2, what="the rebuild")
            assert mirror.data == content
        assert ("bucket reads as empty", "error") in [(entry["event"], entry["log_level"]) for entry in logs]
        await fill(bucket, 9)
        await bucket.put("key-9", b"changed")
        await until(lambda: bool(changes))
        assert changes == [("key-9", b"changed")]
        assert mirror.data == {**content, "key-9": b"changed"}


@pytest.mark.parametrize(("used", "level"), [(False, "info"), (True, "error")], ids=["new", "emptied"])
async def test_an_empty_bucket_is_amiss_unless_it_is_new(
    connection: NatsConnection, bucket: KeyValue, used: bool, level: str
) -> None:
    if used:
        await fill(bucket, 1)
        await connection.js.purge_stream(STREAM)
    with capture_logs() as logs:
        async with mirroring(connection) as mirror:
            await mirror.ready.wait()
    assert [entry["log_level"] for entry in logs if entry["event"] == "bucket reads as empty"] == [level]


async def test_a_re_created_bucket_lets_go_of_what_does_not_come_back(
    connection: NatsConnection, bucket: KeyValue
) -> None:
    await fill(bucket, 3)
    async with mirroring(connection, audit_every=0.5, grace=1.0) as mirror:
        await mirror.ready.wait()
        changes: list[tuple[str, bytes | None]] = []
        mirror.add_listener(lambda key, value: changes.append((key, value)))
        await connection.js.delete_stream(STREAM)
        await ensure_streams(connection.js)
        await bucket.put("key-1", b"1")
        await until(lambda: mirror.rebuilds == 2)
        assert len(mirror.data) == 3
        await until(lambda: mirror.data == {"key-1": b"1"}, what="the end of the grace")
        assert sorted(changes) == [("key-0", None), ("key-2", None)]


async def test_a_missing_bucket_keeps_the_content_and_shows_as_staleness(
    connection: NatsConnection, bucket: KeyValue
) -> None:
    content = await fill(bucket, 3)
    async with mirroring(connection, audit_every=0.1, grace=0.1) as mirror:
        await mirror.ready.wait()
        await connection.js.delete_stream(STREAM)
        await until(lambda: mirror.staleness > 1.5, what="staleness")
        assert mirror.data == content
        await ensure_streams(connection.js)
        await until(lambda: mirror.staleness < 0.5, what="recovery")


async def test_a_bucket_that_appears_late_is_waited_for(connection: NatsConnection) -> None:
    await connection.js.delete_stream(STREAM)
    async with mirroring(connection) as mirror:
        await asyncio.sleep(0.3)
        assert not mirror.ready.is_set()
        assert mirror.staleness == float("inf")
        await ensure_streams(connection.js)
        await asyncio.wait_for(mirror.ready.wait(), 30)


async def test_a_key_purged_behind_our_back_is_found_by_the_audit(
    connection: NatsConnection, bucket: KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "LAG_GRACE_SECONDS", 0.5)
    await fill(bucket, 3)
    async with mirroring(connection, audit_every=0.2) as mirror:
        await mirror.ready.wait()
        await connection.js.purge_stream(STREAM, subject=bucket_subject(SCHEDULES_BUCKET, "key-1"))
        await until(lambda: set(mirror.data) == {"key-0", "key-2"}, what="the ghost to vanish")


async def test_a_key_purged_while_cut_off_leaves_no_ghost(
    proxy: FlakyProxy, connection: NatsConnection, bucket: KeyValue
) -> None:
    await fill(bucket, 3)
    behind = await connect([proxy.url], name="mirror", buffer_writes=False)
    async with mirroring(behind) as mirror:
        await mirror.ready.wait()
        await proxy.cut()
        await connection.js.purge_stream(STREAM, subject=bucket_subject(SCHEDULES_BUCKET, "key-1"))
        proxy.heal()
        await until(lambda: set(mirror.data) == {"key-0", "key-2"}, what="the ghost to vanish")
    await behind.close()


async def test_reconnects_leave_no_consumers_behind(server: NatsServer, connection: NatsConnection) -> None:
    async with mirroring(connection) as mirror:
        await mirror.ready.wait()
        for number in range(3):
            await server.restart()
            await until(lambda: mirror.rebuilds >= number + 2)  # noqa: B023 # awaited within the turn
        assert (await connection.js.stream_info(STREAM)).state.consumer_count == 1
    assert (await connection.js.stream_info(STREAM)).state.consumer_count == 0
