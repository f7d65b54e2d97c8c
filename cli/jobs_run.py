"""What ``tocsin jobs`` does on the servers; imported only when it runs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from shared.contracts.names import SCHEDULES_BUCKET
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.jobs.outcome import JobOutcome
from shared.jobs.runner import JobRunner
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.services.job_desk import PlatformJobDesk
from shared.services.jobs import JobView
from shared.services.jobs import list_jobs as jobs_in
from shared.services.platform_jobs import ApiJobs, WorkerJobs
from shared.services.schedules import Reconciler, ScheduleRelay
from shared.services.slot_audit import SlotAuditor
from shared.settings import DatabaseSettings, JobSettings, load
from shared.tasks.dead_letters import DeadLetterDesk

CONNECT_SECONDS = 10.0
_clock = SystemClock()


class JobsSettings(DatabaseSettings, JobSettings):
    """What ``tocsin jobs`` reads."""


async def read_jobs() -> Sequence[JobView]:
    """Raises ``DatabaseError`` and ``ConfigurationError``."""
    async with AsyncExitStack() as stack:
        database = await _database(stack, load(JobsSettings))
        async with database.system() as session:
            return await jobs_in(session, _clock)


async def run_one(name: str, *, forced: bool) -> JobOutcome:
    """Raises as ``PlatformJobDesk.run``, and ``DatabaseError``, ``MessagingError`` and ``ConfigurationError``."""
    settings = load(JobsSettings)
    async with AsyncExitStack() as stack:
        database = await _database(stack, settings)
        connection = await connect(
            settings.nats_url, name="tocsin-jobs", buffer_writes=False, deadline=CONNECT_SECONDS
        )
        stack.push_async_callback(connection.close)
        publisher = await stack.enter_async_context(Publisher(connection))
        ensure = functools.partial(ensure_streams, connection.js, settings.nats_replicas)
        await ensure()
        reconciler = await _reconciler(stack, database, connection, publisher)
        jobs = [
            *ApiJobs(reconciler, SlotAuditor(dict, settings.retention_days)).all(),
            *WorkerJobs(
                DeadLetterDesk(connection, publisher), settings.retention_days, settings.dead_letter_days
            ).all(),
        ]
        return await PlatformJobDesk(JobRunner(database, connection, _clock, ensure), jobs).run(name, forced=forced)


async def _database(stack: AsyncExitStack, settings: DatabaseSettings) -> Database:
    database = Database(settings.database_url.get_secret_value(), application_name="tocsin-jobs")
    stack.push_async_callback(database.close)
    await database.verify()
    return database


async def _reconciler(
    stack: AsyncExitStack, database: Database, connection: NatsConnection, publisher: Publisher
) -> Reconciler:
    """What it queues is sent by the relay of the API processes."""
    mirror = KeyValueMirror(connection, SCHEDULES_BUCKET, grace=0.0)
    running = asyncio.create_task(mirror.run())
    stack.push_async_callback(_end, running)

    def content() -> Mapping[str, bytes]:
        return mirror.data

    return Reconciler(database, content, ScheduleRelay(database, publisher, _clock), mirror.ready.wait)


async def _end(task: asyncio.Task[None]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.5)
