"""The bucket of schedules is a true copy of the database, whatever happens to either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import msgspec
import pytest

from shared.contracts.names import SCHEDULES_BUCKET
from shared.contracts.wire import RunSpec, Schedule
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.errors import MessagingError
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.services.schedules import Reconciler, ScheduleRelay
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.path.conftest import Tenant


@pytest.fixture
def relay(database: Database, publisher: Publisher) -> ScheduleRelay:
    return ScheduleRelay(database, publisher, SystemClock())


@pytest.fixture
async def mirror(connection: NatsConnection) -> AsyncIterator[KeyValueMirror]:
    """The bucket as a reader sees it, without patience for what vanished."""
    running = KeyValueMirror(connection, SCHEDULES_BUCKET, grace=0.0)
    task = asyncio.create_task(running.run())
    await running.ready.wait()
    yield running
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def reconciler(
    database: Database, mirror: KeyValueMirror, relay: ScheduleRelay, connection: NatsConnection
) -> Reconciler:
    return Reconciler(database, lambda: mirror.data, relay, lambda: ensure_streams(connection.js))


async def holds(mirror: KeyValueMirror, *monitor_ids: UUID) -> None:
    async def equal() -> bool:
        return set(mirror.data) == {str(monitor_id) for monitor_id in monitor_ids}

    await eventually(f"the bucket holds {len(monitor_ids)} schedules", equal)


async def test_a_new_monitor_is_copied_with_all_that_a_worker_needs(
    tenant: Tenant, relay: ScheduleRelay, mirror: KeyValueMirror
) -> None:
    monitor_id = await tenant.create(interval_seconds=10)
    assert await relay.relay_once() == 1
    await holds(mirror, monitor_id)
    schedule = msgspec.json.decode(mirror.data[str(monitor_id)], type=Schedule)
    assert (schedule.monitor_id, schedule.interval_ms, schedule.regions) == (monitor_id, 10_000, ("default",))
    assert abs(schedule.starts_at_ms - SystemClock().now_ms()) < 10_000
    run = msgspec.json.decode(schedule.run, type=RunSpec)
    assert (run.check["url"], run.timeout_seconds, run.retries) == ("http://a.test/", 10.0, 0)


async def test_paused_and_deleted_monitors_leave_the_bucket(
    tenant: Tenant, relay: ScheduleRelay, mirror: KeyValueMirror
) -> None:
    kept, paused, deleted = [await tenant.create(name) for name in ("kept", "paused", "deleted")]
    await relay.relay_once()
    await holds(mirror, kept, paused, deleted)
    await tenant.pause(paused)
    await tenant.delete(deleted)
    await relay.relay_once()
    await holds(mirror, kept)


async def test_what_can_not_be_sent_stays_in_the_outbox(
    tenant: Tenant, relay: ScheduleRelay, mirror: KeyValueMirror, nats: NatsServer
) -> None:
    monitor_id = await tenant.create()
    await nats.stop()
    with pytest.raises(MessagingError):
        await relay.relay_once()
    await nats.start()

    async def relayed() -> bool:
        try:
            return await relay.relay_once() == 1
        except MessagingError:
            return False

    await eventually("relayed after the outage", relayed, within=15)
    await holds(mirror, monitor_id)


async def test_two_relays_send_each_change_in_order(
    tenant: Tenant, database: Database, publisher: Publisher, relay: ScheduleRelay, mirror: KeyValueMirror
) -> None:
    other = ScheduleRelay(database, publisher, SystemClock())
    monitor_ids = [await tenant.create(f"m{index}") for index in range(20)]
    for monitor_id in monitor_ids[::2]:
        await tenant.pause(monitor_id)
    counts = await asyncio.gather(*(each.relay_once() for each in (relay, other) * 3))
    assert sum(counts) == 30
    await holds(mirror, *monitor_ids[1::2])


async def test_the_reconciler_restores_lost_stale_and_surplus_entries(
    tenant: Tenant,
    relay: ScheduleRelay,
    mirror: KeyValueMirror,
    reconciler: Reconciler,
    publisher: Publisher,
) -> None:
    lost, stale, spoilt, fine = [await tenant.create(name) for name in ("lost", "stale", "spoilt", "fine")]
    await relay.relay_once()
    await holds(mirror, lost, stale, spoilt, fine)
    surplus = uuid4()
    value = msgspec.json.decode(mirror.data[str(stale)])
    await publisher.send(bucket_subject(SCHEDULES_BUCKET, str(lost)), b"", headers={"KV-Operation": "DEL"})
    await publisher.send(
        bucket_subject(SCHEDULES_BUCKET, str(stale)), msgspec.json.encode({**value, "revision": 0})
    )
    await publisher.send(bucket_subject(SCHEDULES_BUCKET, str(spoilt)), b"\x80\x04not json")
    await publisher.send(bucket_subject(SCHEDULES_BUCKET, str(surplus)), b"junk")
    await holds(mirror, stale, spoilt, fine, surplus)

    assert await reconciler.reconcile_once() == 4
    assert await relay.relay_once() == 4
    await holds(mirror, lost, stale, spoilt, fine)
    assert await reconciler.reconcile_once() == 0


async def test_a_deleted_bucket_is_filled_again(
    tenant: Tenant,
    relay: ScheduleRelay,
    mirror: KeyValueMirror,
    reconciler: Reconciler,
    connection: NatsConnection,
) -> None:
    monitor_ids = [await tenant.create(f"m{index}") for index in range(5)]
    await relay.relay_once()
    await holds(mirror, *monitor_ids)
    await connection.js.delete_stream(bucket_stream(SCHEDULES_BUCKET))

    async def reconcile_often() -> None:
        while True:
            await reconciler.reconcile()
            await asyncio.sleep(1.0)

    tasks = [asyncio.create_task(part) for part in (relay.run(), reconcile_often())]
    await holds(mirror)

    async def restored() -> bool:
        return set(mirror.data) == {str(monitor_id) for monitor_id in monitor_ids}

    await eventually("all schedules are back", restored, within=30)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
