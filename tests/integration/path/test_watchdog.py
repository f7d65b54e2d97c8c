"""The watchdog sees, in a real installation's servers, that work is not being done; and that it is again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from nats.js.errors import NotFoundError
from prometheus_client import REGISTRY

from shared.contracts import names
from shared.contracts.wire import Progress
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_subject
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_consumer, ensure_task_consumer
from shared.services.watchdog import Watchdog
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.path.conftest import Tenant

clock = SystemClock()


@pytest.fixture
async def watchdog(
    database: Database, connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watchdog]:
    monkeypatch.setattr("shared.services.watchdog.LOOK_SECONDS", 0.2)
    running = Watchdog(database, connection, clock)
    task = asyncio.create_task(running.run())
    yield running
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.5)


async def report(publisher: Publisher, age_ms: int = 0) -> None:
    now = clock.now_ms() - age_ms
    subject = bucket_subject(names.PROGRESS_BUCKET, names.WATERMARK_KEY)
    await publisher.send(subject, msgspec.json.encode(Progress(now, now, "test")))


async def says(watchdog: Watchdog, part: str, *words: str) -> None:
    async def said() -> bool:
        problem = watchdog.alarms.get(part)
        return problem is not None and all(word in problem for word in words)

    await eventually(f"alarm on {part}", said, within=60)


async def is_content_with(watchdog: Watchdog, part: str) -> None:
    async def content() -> bool:
        return part not in watchdog.alarms

    await eventually(f"no alarm on {part}", content, within=60)


async def test_a_scheduler_that_stops_reporting_is_seen(
    watchdog: Watchdog, tenant: Tenant, publisher: Publisher
) -> None:
    await tenant.create()
    await says(watchdog, "dispatch", "no scheduler has ever reported")
    await report(publisher)
    await is_content_with(watchdog, "dispatch")
    await report(publisher, age_ms=9_000)
    await says(watchdog, "dispatch", "no scheduler has dispatched for")
    assert REGISTRY.get_sample_value("tocsin_watchdog_alarm", {"part": "dispatch"}) == 1


@pytest.mark.slow
async def test_the_servers_own_beat_is_missed_when_it_is_gone_and_comes_back(
    watchdog: Watchdog, connection: NatsConnection
) -> None:
    async def beating() -> bool:
        return watchdog.alarms.keys().isdisjoint({"beat", "watchdog"})

    async def beaten() -> bool:
        with contextlib.suppress(NotFoundError):
            return bool(await connection.js.get_last_msg(names.BEATS_STREAM, names.BEAT_SUBJECT))
        return False

    await eventually("the beat is there", beaten, within=60)
    await connection.js.purge_stream(names.BEATS_STREAM)
    await says(watchdog, "beat", "not there")
    await eventually("the beat is back", beating, within=60)


async def test_a_region_without_workers_is_named(
    watchdog: Watchdog, tenant: Tenant, connection: NatsConnection
) -> None:
    await tenant.create()
    await says(watchdog, "workers", "no worker has ever served default")
    await ensure_consumer(connection.js, "default")
    await is_content_with(watchdog, "workers")


def waiting(stream: str) -> tuple[float | None, float | None]:
    """How many messages wait, and for how many seconds the oldest does."""
    names = ("tocsin_queue_pending", "tocsin_queue_oldest_seconds")
    pending, oldest = (REGISTRY.get_sample_value(name, {"stream": stream}) for name in names)
    return pending, oldest


async def test_tasks_that_nobody_takes_are_seen_and_those_that_wait_for_an_attempt_are_none(
    watchdog: Watchdog, connection: NatsConnection, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.domain.watchdog.OLD_TASKS_MS", 500)
    await publisher.send(names.task_subject(None, "mail"), b"{}", message_id="before any worker was there")
    await says(watchdog, "tasks", "1 tasks, such as notifications, are not taken")
    await ensure_task_consumer(connection.js)
    reader = await connection.js.pull_subscribe_bind(names.TASKS_CONSUMER, names.TASKS_STREAM)
    (waits,) = await reader.fetch(1)
    await waits.nak(delay=3600)
    await is_content_with(watchdog, "tasks")
    assert waiting("TASKS") == (0, 0)
    await publisher.send(names.task_subject(None, "mail"), b"{}", message_id="when it was gone")
    await says(watchdog, "tasks", "1 tasks, such as notifications, are not taken")
    pending, oldest = waiting("TASKS")
    assert pending == 1
    assert oldest is not None
    assert 0.5 < oldest < 60, "that of the second one"
    await reader.unsubscribe()


async def test_a_server_that_is_away_is_an_alarm_and_not_the_end(watchdog: Watchdog, nats: NatsServer) -> None:
    await nats.stop()
    await says(watchdog, "watchdog", "it can't see")
    await nats.start()
    await is_content_with(watchdog, "watchdog")
