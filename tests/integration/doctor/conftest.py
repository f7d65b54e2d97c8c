"""An installation to examine, and how the doctor is called."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import msgspec
import pytest
from sqlalchemy import text

from shared.contracts import names
from shared.contracts.wire import Progress
from shared.db.repositories.schedules import active_schedules
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.monitor import MonitorSpec
from shared.messaging.beat import ensure_beat
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_subject, declared_consumers
from shared.services.schedules import schedule_of
from tests.integration.path.conftest import make_tenant

KEY = "k" * 32  # as make_tenant seals


@dataclass
class Clock:
    """The machine's clock, wrong by ``off_ms``."""

    off_ms: int = 0

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.off_ms

    def monotonic(self) -> float:
        return SystemClock().monotonic()


@dataclass
class Stored:
    """A database with a monitor: what belongs to nobody else."""

    database: Database
    url: str
    clock: Clock
    keys: list[str]

    async def sql(self, statement: str) -> None:
        async with self.database.system() as session:
            await session.execute(text(statement))

    async def owner(self, statement: str) -> None:
        owner = await asyncpg.connect(self.url)
        try:
            await owner.execute(statement)
        finally:
            await owner.close()


@dataclass
class Patient(Stored):
    """Both servers as they are while everything runs: each test then breaks one thing."""

    connection: NatsConnection

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        await self.connection.js.publish(bucket_subject(bucket, key), value)

    async def copy_schedules(self) -> None:
        async with self.database.system() as session:
            ids = [row[0] for row in await session.execute(text("SELECT id FROM monitors"))]
            for row in await active_schedules(session, ids):
                schedule = msgspec.json.encode(schedule_of(row))
                await self.put(names.SCHEDULES_BUCKET, str(row.monitor_id), schedule)
            await session.execute(text("DELETE FROM outbox"))

    async def report(self) -> None:
        """As a leading scheduler does."""
        await self.report_progress()
        await self.put(names.LEADER_BUCKET, names.LEADER_KEY, b"a")

    async def report_progress(self) -> None:
        now = SystemClock().now_ms()
        progress = msgspec.json.encode(Progress(now, now, "a"))
        await self.put(names.PROGRESS_BUCKET, names.WATERMARK_KEY, progress)

    async def read(self) -> None:
        """As a worker does: one open request on every consumer."""
        inbox = self.connection.client.new_inbox()
        await self.connection.client.subscribe(inbox)
        for stream, consumer in declared_consumers(["default"]):
            await self.connection.js.add_consumer(stream, consumer)
            request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer.durable_name}"
            await self.connection.client.publish(request, b'{"batch": 10, "expires": 30000000000}', reply=inbox)


@pytest.fixture
async def stored(database: Database, database_url: str) -> Stored:
    tenant = await make_tenant(database)
    secret = {"kind": "http", "url": "http://a.test/", "auth": {"kind": "bearer", "token": "t"}}
    spec = MonitorSpec.model_validate({"name": "m", "interval_seconds": 10, "check": secret})
    async with database.tenant(tenant.organisation_id) as session:
        await tenant.service.create(session, tenant.organisation_id, spec)
    return Stored(database, database_url, Clock(), [KEY])


@pytest.fixture
async def patient(stored: Stored, connection: NatsConnection) -> Patient:
    await ensure_beat(connection)
    await connection.js.publish(names.BEAT_SUBJECT, b"")
    patient = Patient(stored.database, stored.url, stored.clock, stored.keys, connection)
    await patient.copy_schedules()
    await patient.report()
    await patient.read()
    return patient
