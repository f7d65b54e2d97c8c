"""From an incident to a channel: real PostgreSQL, real NATS, a worker's task loop and the relay in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, text

from shared.channels.tools import build_tools
from shared.contracts.sealing import Sealer
from shared.db.base import new_id
from shared.db.models import Channel, Delivery
from shared.db.repositories import incidents
from shared.db.repositories.deliveries import Queued
from shared.db.session import Database
from shared.domain import incident as machine
from shared.domain.alert_policy import AlertPolicySpec
from shared.domain.clock import Clock, SystemClock, to_datetime
from shared.domain.incident import Event, Incident, Severity
from shared.http.guard import AddressPolicy
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import PublishUnknownError
from shared.messaging.publisher import Publisher
from shared.services.alert_policies import AlertPolicyService
from shared.services.alerting import AlertRelay
from shared.services.channels import ChannelService
from shared.services.delivering import NOTIFICATIONS, Notifier, TaskDeliveryQueue
from shared.tasks.queue import TaskQueue
from shared.tasks.worker import TaskWorker
from tests.integration.channels.sinks import HttpSink
from tests.integration.db.tenants import add_monitor, add_organisation

KEY = "k" * 32
FAILURE = machine.Failure("status_code", "the server answered 503", "w1", "default", 0, None)


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 what is waited for happens in servers
            await asyncio.sleep(0.02)


@dataclass
class Scene:
    """A tenant whose monitors fail and recover as a test says."""

    database: Database
    organisation_id: UUID
    clock: Clock = field(default_factory=SystemClock)

    @property
    def channels(self) -> ChannelService:
        return ChannelService(Sealer([KEY]), self.clock, build_tools(AddressPolicy(allow_private=True), self.clock))

    async def add_channel(self, kind: str = "webhook", *, config: dict[str, Any], **fields: Any) -> UUID:
        wanted = {"name": kind, "default": True, "fallback_channel_id": None, "templates": {}, **fields}
        async with self.database.tenant(self.organisation_id) as session:
            channel = await self.channels.create(session, self.organisation_id, kind, {**wanted, "config": config})
        return channel.id

    async def add_policy(self, **fields: Any) -> UUID:
        spec = AlertPolicySpec.model_validate({"name": "policy", **fields})
        async with self.database.tenant(self.organisation_id) as session:
            return (await AlertPolicyService(self.clock).create(session, self.organisation_id, spec)).id

    async def add_monitor(self, **columns: Any) -> UUID:
        return await add_monitor(self.database, self.organisation_id, to_datetime(self.clock.now_ms()), **columns)

    async def open(self, monitor_id: UUID | None = None, **fields: Any) -> Incident:
        """What the recorder does when a monitor goes down."""
        monitor_id = monitor_id or await self.add_monitor()
        now = self.clock.now_ms()
        incident = Incident(
            id=new_id(),
            organisation_id=self.organisation_id,
            monitor_id=monitor_id,
            **{
                "severity": Severity.DOWN,
                "cause": "status_code",
                "message": "the server answered 503",
                "started_at_ms": now,
                "opened_at_ms": now,
                "last_failure_at_ms": now,
                "alert_not_before_ms": now,
                **fields,
            },
        )
        return await self._write(incident, machine.opened(incident))

    async def resolve(self, incident: Incident) -> Incident:
        now = self.clock.now_ms()
        return await self._write(*machine.resolved(incident, now, now))

    async def acknowledge(self, incident: Incident, by: str = "alice") -> Incident:
        return await self._write(*machine.acknowledged(incident, by, self.clock.now_ms()))

    async def worsen(self, incident: Incident) -> Incident:
        """A degraded monitor goes down."""
        return await self._write(*machine.raised(incident, FAILURE, self.clock.now_ms()))

    async def reopen(self, incident: Incident) -> Incident:
        return await self._write(*machine.reopened(incident, FAILURE, self.clock.now_ms()))

    async def _write(self, incident: Incident, event: Event) -> Incident:
        async with self.database.system() as session:
            await incidents.save(session, [incident])
            await incidents.write_events(session, [event])
        return incident

    async def deliveries(self, **wanted: Any) -> list[Delivery]:
        async with self.database.system() as session:
            rows = (await session.execute(select(Delivery).order_by(Delivery.number))).scalars().all()
        return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]

    async def channel(self, channel_id: UUID) -> Channel:
        async with self.database.system() as session:
            found = await session.get(Channel, channel_id)
        assert found is not None
        return found

    async def timeline(self, incident: Incident) -> list[dict[str, Any]]:
        async with self.database.system() as session:
            events = await incidents.events_of(session, incident.id, 1000)
        return [event.detail for event in events if event.kind == "delivery"]

    async def has_settled(self) -> bool:
        """Whether nothing is on its way any more."""
        async with self.database.system() as session:
            return bool(
                await session.scalar(
                    text("""
                        SELECT NOT EXISTS (SELECT FROM outbox WHERE topic = 'incident')
                            AND NOT EXISTS (SELECT FROM deliveries WHERE settled_at IS NULL)
                    """)
                )
            )


@pytest.fixture
async def scene(database: Database) -> Scene:
    return Scene(database, await add_organisation(database, "alice"))


@pytest.fixture
async def sink() -> AsyncIterator[HttpSink]:
    async with HttpSink() as running:
        yield running


@asynccontextmanager
async def alerting(scene: Scene, connection: NatsConnection, **tools: Any) -> AsyncIterator[None]:
    """The relay and a worker, beside the test."""
    clock = SystemClock()
    async with Publisher(connection) as publisher:
        policy = AddressPolicy(allow_private=True)
        notifier = Notifier(scene.database, Sealer([KEY]), build_tools(policy, clock, **tools), clock)
        worker = TaskWorker(connection, publisher, clock)
        worker.add(NOTIFICATIONS, notifier)
        stopping = asyncio.Event()
        relay = AlertRelay(scene.database, TaskDeliveryQueue(TaskQueue(publisher, clock)), clock)
        running = [asyncio.create_task(worker.listen(stopping)), asyncio.create_task(relay.run())]
        try:
            yield
        finally:
            stopping.set()
            running[1].cancel()
            await asyncio.wait(running)
            for task in running:
                if not task.cancelled() and task.exception():
                    raise task.exception()  # type: ignore[misc]  # it is one
            await worker.close()


class TakesNothing:
    """A queue that is away."""

    async def put(self, delivery: Queued) -> None:
        raise PublishUnknownError(f"no answer for {delivery.id}")
