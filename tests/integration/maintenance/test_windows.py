"""Maintenance windows over HTTP, what they cover, and their edges."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories.maintenance import spans_of
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.services.maintenance import MaintenanceKeeper
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import Tenant
from tests.integration.db.tenants import add_monitor, add_organisation

PATH = "/v1/maintenance-windows"
MINUTE, DAY = 60_000, 86_400_000


def instant(moment_ms: int) -> str:
    return to_datetime(moment_ms).isoformat()


def once(clock: FakeClock, start: int, end: int, **fields: Any) -> dict[str, Any]:
    """A window for everything; minutes count from now."""
    times = {
        "starts_at": instant(clock.now_ms() + start * MINUTE),
        "ends_at": instant(clock.now_ms() + end * MINUTE),
    }
    return {"name": "Upgrade", "all": True, **times, **fields}


async def create(tenant: Tenant, window: dict[str, Any]) -> dict[str, Any]:
    answer = await tenant.client.post(PATH, json=window)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def spans(database: Database, monitor: dict[str, Any], around_ms: int, reach: int = 8 * DAY) -> list[Any]:
    async with database.system() as session:
        found = await spans_of(session, [UUID(monitor["id"])], around_ms - reach, around_ms + reach)
    return found.get(UUID(monitor["id"]), [])


class Reconsidered:
    """Notes whom the keeper has looked at again."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[UUID], int]] = []

    async def __call__(self, _: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
        self.calls.append((list(monitor_ids), now_ms))

    def taken(self) -> list[UUID]:
        found = [monitor_id for ids, _ in self.calls for monitor_id in ids]
        self.calls.clear()
        return found


@pytest.mark.parametrize("years", [1, 9, 70])
async def test_a_window_far_ahead_is_scheduled(tenant: Tenant, clock: FakeClock, years: int) -> None:
    start = years * 365 * 24 * 60
    created = await create(tenant, once(clock, start, start + 60))
    assert (created["status"], created["next_starts_at"]) == ("scheduled", created["starts_at"])


async def test_a_window_reads_back_with_its_next_span(tenant: Tenant, clock: FakeClock) -> None:
    monitor = await tenant.add_monitor()
    created = await create(tenant, once(clock, 10, 20, all=False, monitors=[monitor["id"]]))
    read = (await tenant.client.get(f"{PATH}/{created['id']}")).json()
    assert read == created
    assert (read["status"], read["monitors"], read["schedule"]) == ("scheduled", [monitor["id"]], None)
    assert (read["next_starts_at"], read["next_ends_at"]) == (read["starts_at"], read["ends_at"])
    listed = (await tenant.client.get(PATH, params={"limit": 1})).json()
    assert listed == {"items": [created], "next_cursor": None}
    clock.advance(15 * 60)
    assert (await tenant.client.get(f"{PATH}/{created['id']}")).json()["status"] == "active"
    clock.advance(5 * 60)
    assert (await tenant.client.get(f"{PATH}/{created['id']}")).json()["status"] == "ended"


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"all": False}, "monitors"),
        ({"monitors": ["01890000-0000-7000-8000-000000000000"]}, "monitors"),
        ({"ends_at": "2020-01-01T00:00:00Z", "starts_at": "2019-01-01T00:00:00Z"}, "ends_at"),
        ({"starts_at": None}, "ends_at"),
        ({"starts_at": "2027-01-01T00:00:00"}, "starts_at"),
        ({"schedule": {"cron": "0 1 * * *", "duration_minutes": 5, "timezone": "UTC"}}, "schedule"),
        ({"name": " "}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_window_that_cannot_be_is_refused(
    tenant: Tenant, clock: FakeClock, fields: dict[str, Any], place: str
) -> None:
    answer = await tenant.client.post(PATH, json=once(clock, 10, 20, **fields))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == place


@pytest.mark.parametrize(
    ("schedule", "place"),
    [
        ({"cron": "0 0 31 2 *"}, "schedule"),
        ({"cron": "0 1 * * *", "timezone": "Mars/Olympus"}, "schedule"),
        ({"rrule": "FREQ=SECONDLY", "first_start": "2026-01-01T00:00:00"}, "schedule"),
        ({"cron": "0 1 * * *", "duration_minutes": 0}, "schedule.duration_minutes"),
    ],
)
async def test_time_02_a_schedule_that_cannot_be_is_refused(
    tenant: Tenant, schedule: dict[str, Any], place: str
) -> None:
    fields = {"duration_minutes": 60, "timezone": "Europe/Berlin", **schedule}
    answer = await tenant.client.post(PATH, json={"name": "x", "all": True, "schedule": fields})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].startswith(place)


async def test_a_window_covers_those_it_names_by_id_or_by_tag(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    shop = await tenant.add_monitor(tags={"team": "shop", "tier": "1"})
    blog = await tenant.add_monitor(tags={"team": "blog"})
    now = clock.now_ms()
    await create(tenant, once(clock, 0, 10, all=False, tags={"team": "shop", "tier": "1"}))
    await create(tenant, once(clock, 5, 20, all=False, monitors=[shop["id"], blog["id"]]))
    await create(tenant, once(clock, 30, 40, all=False, tags={"team": "blog", "tier": "1"}))
    assert await spans(database, shop, now) == [(now, now + 20 * MINUTE)]
    assert await spans(database, blog, now) == [(now + 5 * MINUTE, now + 20 * MINUTE)]
    assert await spans(database, blog, now, reach=5 * MINUTE) == [], "half-open on both sides"


async def test_windows_of_another_tenant_are_neither_seen_nor_felt(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    other = await add_organisation(database, "bob")
    foreign = await add_monitor(database, other, to_datetime(clock.now_ms()))
    answer = await tenant.client.post(PATH, json=once(clock, 0, 10, monitors=[str(foreign)]))
    assert answer.status_code == 422
    created = await create(tenant, once(clock, 0, 10))
    assert await spans(database, {"id": str(foreign)}, clock.now_ms()) == []
    async with database.tenant(other) as session:
        seen = await session.execute(text("SELECT count(*) FROM maintenance_windows, maintenance_occurrences"))
        assert seen.scalar_one() == 0
    assert created["status"] == "active"


async def test_a_window_never_reaches_back(tenant: Tenant, clock: FakeClock, database: Database) -> None:
    monitor = await tenant.add_monitor()
    created = await create(tenant, once(clock, -60, 10))
    now = clock.now_ms()
    clock.advance(60)
    await keeper(database, clock, Reconsidered()).plan()
    assert await spans(database, monitor, now) == [(now, now + 10 * MINUTE)]
    assert (created["status"], created["next_starts_at"]) == ("active", created["created_at"])


def keeper(database: Database, clock: FakeClock, reconsidered: Reconsidered) -> MaintenanceKeeper:
    return MaintenanceKeeper(database, clock, reconsidered)


async def test_each_edge_is_told_once_whoever_sweeps(tenant: Tenant, clock: FakeClock, database: Database) -> None:
    monitor = UUID((await tenant.add_monitor())["id"])
    clock.advance(60)
    await create(tenant, once(clock, 1, 2))
    reconsidered = Reconsidered()
    keepers = [keeper(database, clock, reconsidered) for _ in range(3)]

    async def sweep() -> list[UUID]:
        await asyncio.gather(*(each.sweep() for each in keepers))
        return reconsidered.taken()

    assert await sweep() == []
    clock.advance(60)
    assert await sweep() == [monitor]
    assert await sweep() == []
    clock.advance(59.999)
    assert await sweep() == []
    clock.advance(0.001)
    assert await sweep() == [monitor]
    assert await sweep() == []


async def test_a_window_that_nobody_saw_is_told_once_when_somebody_looks(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    monitor = UUID((await tenant.add_monitor())["id"])
    await create(tenant, once(clock, 1, 2))
    clock.advance(3600)
    reconsidered = Reconsidered()
    await keeper(database, clock, reconsidered).sweep()
    await keeper(database, clock, reconsidered).sweep()
    assert reconsidered.taken() == [monitor]


async def test_a_sweep_that_fails_is_done_again(tenant: Tenant, clock: FakeClock, database: Database) -> None:
    monitor = UUID((await tenant.add_monitor())["id"])
    await create(tenant, once(clock, 0, 2))
    reconsidered = Reconsidered()

    async def failing(session: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
        raise OSError("the machine stopped here")

    with pytest.raises(OSError, match="stopped"):
        await MaintenanceKeeper(database, clock, failing).sweep()
    await keeper(database, clock, reconsidered).sweep()
    assert reconsidered.taken() == [monitor]


@pytest.mark.parametrize("how", ["deleted", "shortened", "no longer meant"])
async def test_state_02_e_an_open_window_that_is_ended_ends_now(
    tenant: Tenant, clock: FakeClock, database: Database, how: str
) -> None:
    monitor = await tenant.add_monitor()
    other = await tenant.add_monitor()
    start = clock.now_ms()
    created = await create(tenant, once(clock, 0, 60))
    reconsidered = Reconsidered()
    await keeper(database, clock, reconsidered).sweep()
    clock.advance(600)
    path = f"{PATH}/{created['id']}"
    if how == "deleted":
        assert (await tenant.client.delete(path)).status_code == 204
        assert (await tenant.client.get(path)).status_code == 404
    elif how == "shortened":
        ended = await tenant.client.patch(path, json={"ends_at": instant(clock.now_ms() - 1)})
        assert (ended.status_code, ended.json()["status"]) == (200, "ended")
    else:
        changed = await tenant.client.patch(path, json={"all": False, "monitors": [other["id"]]})
        assert changed.status_code == 200, changed.text
    clock.advance(1)
    reconsidered.taken()
    await keeper(database, clock, reconsidered).sweep()
    assert UUID(monitor["id"]) in reconsidered.taken()
    await keeper(database, clock, reconsidered).plan()
    assert await spans(database, monitor, start) == [(start, start + 600_000)]


async def test_renaming_an_open_window_does_not_touch_it(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    monitor = await tenant.add_monitor()
    start = clock.now_ms()
    created = await create(tenant, once(clock, 0, 60))
    clock.advance(600)
    renamed = await tenant.client.patch(f"{PATH}/{created['id']}", json={"name": "Longer than thought"})
    assert renamed.json()["name"] == "Longer than thought"
    assert await spans(database, monitor, start) == [(start, start + 60 * MINUTE)]


async def test_a_monitor_that_gets_the_tag_of_an_open_window_is_looked_at(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    monitor = await tenant.add_monitor()
    await create(tenant, once(clock, 0, 60, all=False, tags={"team": "shop"}))
    reconsidered = Reconsidered()
    await keeper(database, clock, reconsidered).sweep()
    clock.advance(60)
    await keeper(database, clock, reconsidered).sweep()
    reconsidered.taken()
    await tenant.client.patch(f"/v1/monitors/{monitor['id']}", json={"tags": {"team": "shop"}})
    await keeper(database, clock, reconsidered).sweep()
    assert reconsidered.taken() == [UUID(monitor["id"])]


async def test_time_02_a_recurring_window_is_planned_week_by_week(
    tenant: Tenant, clock: FakeClock, database: Database
) -> None:
    monitor = await tenant.add_monitor()
    schedule = {"cron": "30 3 * * *", "duration_minutes": 60, "timezone": "Europe/Berlin"}
    created = await create(tenant, {"name": "Backup", "all": True, "schedule": schedule})
    assert len(await spans(database, monitor, clock.now_ms(), 30 * DAY)) in (7, 8)
    whole = keeper(database, clock, Reconsidered())
    await whole.plan()
    await whole.plan()
    before = await spans(database, monitor, clock.now_ms(), 30 * DAY)
    clock.advance(timedelta(days=3).total_seconds())
    await whole.plan()
    after = await spans(database, monitor, clock.now_ms(), 30 * DAY)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 3
    assert all(end - start == 60 * MINUTE for start, end in after)
    assert created["schedule"] == {**schedule, "rrule": None, "first_start": None}


async def test_what_is_long_over_is_forgotten(tenant: Tenant, clock: FakeClock, database: Database) -> None:
    monitor = await tenant.add_monitor()
    start = clock.now_ms()
    await create(tenant, once(clock, 0, 60))
    clock.advance(timedelta(days=29).total_seconds())
    await keeper(database, clock, Reconsidered()).sweep()
    await keeper(database, clock, Reconsidered()).plan()
    assert await spans(database, monitor, start) != []
    clock.advance(timedelta(days=2).total_seconds())
    await keeper(database, clock, Reconsidered()).plan()
    assert await spans(database, monitor, start) == []
