"""The path of a check in parts: a tenant with monitors, the queue, and what joins them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from shared.contracts.sealing import Sealer
from shared.db.models import Organisation
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.monitor import MonitorSpec
from shared.services.monitors import MonitorService
from tests.integration.path.certificates import Viewer
from tests.integration.path.scene import Scene


@dataclass
class Tenant:
    """An organisation whose monitors are changed as the API changes them."""

    database: Database
    organisation_id: UUID
    service: MonitorService

    async def create(self, name: str = "m", interval_seconds: int = 10) -> UUID:
        spec = MonitorSpec.model_validate(
            {"name": name, "interval_seconds": interval_seconds, "check": {"kind": "http", "url": "http://a.test/"}}
        )
        async with self.database.tenant(self.organisation_id) as session:
            return await self.service.create(session, self.organisation_id, spec)

    async def pause(self, monitor_id: UUID) -> None:
        async with self.database.tenant(self.organisation_id) as session:
            await self.service.pause(session, monitor_id)

    async def delete(self, monitor_id: UUID) -> None:
        async with self.database.tenant(self.organisation_id) as session:
            await self.service.delete(session, monitor_id)


async def make_tenant(database: Database) -> Tenant:
    organisation = Organisation(name="Acme", slug="acme")
    async with database.system() as session:
        session.add(organisation)
        await session.flush()
        organisation_id = organisation.id
    return Tenant(database, organisation_id, MonitorService(Sealer(["k" * 32]), SystemClock()))


@pytest.fixture
async def tenant(database: Database) -> Tenant:
    return await make_tenant(database)


@pytest.fixture
def viewer(scene: Scene) -> Viewer:
    return Viewer(scene, scene.database)


@pytest.fixture
async def other(scene: Scene, database_url: str) -> AsyncIterator[Viewer]:
    """A second recorder, with connections of its own."""
    async with Database(database_url, application_name="second recorder") as database:
        yield Viewer(scene, database)
