"""STATE-02: what a maintenance window around an outage keeps quiet, and what is told at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import CheckVerdict, ResultStatus
from shared.services.incidents import reconsider
from shared.services.maintenance import MaintenanceKeeper
from shared.services.recording import record
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import Tenant

UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "refused"))
PATH = "/v1/maintenance-windows"


@dataclass
class Course:
    """One monitor, checked every minute, and what people would be told of it."""

    tenant: Tenant
    database: Database
    clock: FakeClock
    monitor: dict[str, Any]
    keeper: MaintenanceKeeper

    async def check(self, *verdicts: CheckVerdict) -> None:
        for verdict in verdicts:
            self.clock.advance(60)
            await self.keeper.sweep()
            now_ms = self.clock.now_ms()
            message = ResultMessage(UUID(self.monitor["id"]), 1, "default", now_ms, now_ms, verdict)
            async with self.database.system() as session:
                await record(session, [message], now_ms)

    async def open_window(self, minutes: int) -> dict[str, Any]:
        """From now on."""
        now_ms = self.clock.now_ms()
        times = {
            "starts_at": to_datetime(now_ms).isoformat(),
            "ends_at": to_datetime(now_ms + minutes * 60_000).isoformat(),
        }
        answer = await self.tenant.client.post(PATH, json={"name": "Upgrade", "all": True, **times})
        assert answer.status_code == 201, answer.text
        await self.keeper.sweep()
        window: dict[str, Any] = answer.json()
        return window

    async def end(self, minutes: float = 10) -> None:
        """Until the window is over, without another result."""
        self.clock.advance(minutes * 60)
        await self.keeper.sweep()

    async def status(self) -> str:
        answer = await self.tenant.client.get(f"/v1/monitors/{self.monitor['id']}")
        return str(answer.json()["status"])

    async def told(self) -> list[str]:
        rows = "SELECT payload->>'transition' FROM outbox WHERE topic = 'incident' ORDER BY id"
        async with self.database.system() as session:
            return list((await session.execute(text(rows))).scalars())

    async def history(self) -> list[str]:
        rows = "SELECT status FROM state_periods ORDER BY starts_at, id"
        async with self.database.system() as session:
            return list((await session.execute(text(rows))).scalars())


@pytest.fixture
async def course(tenant: Tenant, database: Database, clock: FakeClock) -> Course:
    monitor = await tenant.add_monitor(flap_window_seconds=0)
    return Course(tenant, database, clock, monitor, MaintenanceKeeper(database, clock, reconsider))


async def test_state_02_a_an_outage_that_ends_inside_is_told_at_the_end(course: Course) -> None:
    await course.check(UP, DOWN)
    assert await course.told() == ["opened"]
    await course.open_window(10)
    assert await course.status() == "maintenance"
    await course.check(DOWN, UP, UP)
    assert await course.told() == ["opened"]
    assert await course.status() == "maintenance"
    await course.end()
    assert await course.told() == ["opened", "resolved"]
    assert await course.status() == "up"


async def test_state_02_b_an_outage_that_goes_on_is_not_told_again(course: Course) -> None:
    await course.check(UP, DOWN)
    await course.open_window(10)
    await course.check(DOWN, UP, DOWN)
    await course.end()
    await course.check(DOWN)
    assert await course.told() == ["opened"]
    assert await course.status() == "down"
    listed = (await course.tenant.client.get("/v1/incidents")).json()["items"]
    assert [incident["state"] for incident in listed] == ["open"]


async def test_state_02_c_an_outage_that_began_inside_is_told_at_the_end(course: Course) -> None:
    await course.check(UP)
    await course.open_window(10)
    await course.check(DOWN, DOWN)
    assert await course.told() == []
    await course.end()
    assert await course.told() == ["opened"], "without another result"
    await course.check(DOWN)
    assert await course.told() == ["opened"]


async def test_state_02_d_an_outage_inside_is_never_told(course: Course) -> None:
    await course.check(UP)
    await course.open_window(10)
    await course.check(DOWN, UP)
    await course.end()
    await course.check(UP)
    assert await course.told() == []
    assert await course.history() == ["pending", "up", "maintenance", "up"]


@pytest.mark.parametrize("how", ["deleted", "shortened"])
async def test_state_02_e_a_window_that_is_ended_early_ends_now(course: Course, how: str) -> None:
    await course.check(UP)
    window = await course.open_window(60)
    await course.check(DOWN)
    assert await course.told() == []
    path = f"{PATH}/{window['id']}"
    if how == "deleted":
        await course.tenant.client.delete(path)
    else:
        now = to_datetime(course.clock.now_ms()).isoformat()
        await course.tenant.client.patch(path, json={"ends_at": now})
    await course.end(1 / 60)
    assert await course.told() == ["opened"]
    assert await course.status() == "down"


async def test_time_02_no_notice_inside_and_one_outside(course: Course) -> None:
    await course.check(UP)
    schedule = {"cron": "0 0 * * *", "duration_minutes": 60, "timezone": "Europe/Berlin"}
    answer = await course.tenant.client.post(PATH, json={"name": "Backup", "all": True, "schedule": schedule})
    start = answer.json()["next_starts_at"]
    async with course.database.system() as session:
        ahead = (
            await session.execute(
                text("SELECT extract(epoch FROM CAST(:start AS text)::timestamptz)"), {"start": start}
            )
        ).scalar_one()
    course.clock.advance(float(ahead) - course.clock.now_ms() / 1000)
    await course.check(*[DOWN] * 59)
    assert await course.told() == []
    await course.check(DOWN)
    assert await course.told() == ["opened"], "half-open: the end is outside"
