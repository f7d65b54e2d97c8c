from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_task_consumer
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.queue import TaskQueue
from shared.testing.nats import NatsServer
from tests.integration.tasks.crew import Crew


@pytest.fixture
async def connection(connection: NatsConnection) -> NatsConnection:
    """A connection as workers have it: with the consumer of their tasks, too."""
    await ensure_task_consumer(connection.js)
    return connection


@pytest.fixture
def queue(publisher: Publisher) -> TaskQueue:
    return TaskQueue(publisher, SystemClock())


@pytest.fixture
def desk(connection: NatsConnection, publisher: Publisher) -> DeadLetterDesk:
    return DeadLetterDesk(connection, publisher)


@pytest.fixture
async def crew(nats: NatsServer, connection: NatsConnection, tmp_path: Path) -> AsyncIterator[Crew]:
    """Worker processes of the test; nobody works yet."""
    async with Crew(nats.url, connection, tmp_path) as running:
        yield running
