"""A stored window that this release cannot read."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text

from shared.db.session import Database
from shared.services.incidents import reconsider
from shared.services.maintenance import MaintenanceKeeper
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import Tenant

_DAMAGE = 'UPDATE maintenance_windows SET schedule = schedule || \'{"timezone": "Mars/Olympus"}\' WHERE id = :id'


async def test_it_holds_up_the_planning_of_no_other(tenant: Tenant, database: Database, clock: FakeClock) -> None:
    nightly = {"cron": "0 1 * * *", "duration_minutes": 30, "timezone": "Europe/Berlin"}
    ids = []
    for name in ("broken", "sound"):
        window = {"name": name, "all": True, "schedule": nightly}
        ids.append(UUID((await tenant.client.post("/v1/maintenance-windows", json=window)).json()["id"]))
    async with database.system() as session:
        await session.execute(text("DELETE FROM maintenance_occurrences"))
        await session.execute(text(_DAMAGE), {"id": ids[0]})
    await MaintenanceKeeper(database, clock, reconsider).plan()
    async with database.system() as session:
        planned = await session.execute(text("SELECT DISTINCT window_id FROM maintenance_occurrences"))
        assert list(planned.scalars()) == ids[1:]
