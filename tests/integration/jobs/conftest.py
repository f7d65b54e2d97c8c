"""A runner over real servers, and its books."""

from __future__ import annotations

from typing import Any

import pytest

from shared.db.models import JobState
from shared.db.repositories import jobs as repository
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.jobs.runner import JobRunner
from shared.messaging.connect import NatsConnection
from shared.messaging.streams import ensure_streams

clock = SystemClock()


@pytest.fixture
def runner(database: Database, connection: NatsConnection) -> JobRunner:
    return new_runner(database, connection)


def new_runner(database: Database, connection: NatsConnection) -> JobRunner:
    return JobRunner(database, connection, clock, lambda: ensure_streams(connection.js))


async def state(database: Database, name: str) -> JobState:
    async with database.system() as session:
        found = await repository.get(session, name)
    assert found is not None, f"{name} is not registered"
    return found


async def books(database: Database, name: str) -> dict[str, Any]:
    """How often it ran, failed and so on."""
    row = await state(database, name)
    counted = ("runs", "failures", "timeouts", "skipped", "last_status", "checkpoint")
    return {column: getattr(row, column) for column in counted}
