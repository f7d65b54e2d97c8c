"""Judging beside people who change heartbeats, and beside rows that this release cannot read."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.contracts.sealing import Sealer
from shared.db.base import new_id
from shared.db.repositories import heartbeats
from shared.db.repositories.state import lock_states
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.services.monitors import MonitorService
from tests.integration.alerting.conftest import eventually
from tests.integration.api.conftest import SECRET_KEY
from tests.integration.heartbeats.conftest import Installation


async def _somebody_waits(database: Database) -> bool:
    async with database.system() as session:
        query = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(await session.scalar(query))


async def test_a_heartbeat_that_is_changed_while_it_is_judged_costs_nobody_a_transaction(
    installation: Installation,
) -> None:
    monitor_id = UUID((await installation.add())["id"])
    service = MonitorService(Sealer([SECRET_KEY]), installation.clock)

    async def change() -> None:
        patch = {"check": {"kind": "heartbeat", "period_seconds": 60}}
        async with installation.database.tenant(installation.organisation_id) as session:
            await service.change(session, monitor_id, patch, None)

    later = to_datetime(installation.clock.now_ms() + 86_400_000)
    async with installation.database.system() as judging:
        assert await heartbeats.take(judging, later, limit=10, pings=10)
        changing = asyncio.create_task(change())
        await eventually(lambda: _somebody_waits(installation.database))
        assert await lock_states(judging, [monitor_id])
    await changing


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE monitors SET check_spec = check_spec || \'{"timezone": "Mars/Olympus"}\' WHERE id = :id',
        "UPDATE heartbeats SET state = '{}' WHERE monitor_id = :id",
    ],
    ids=["check", "state"],
)
async def test_a_heartbeat_that_cannot_be_read_keeps_its_pings_and_holds_up_nobody(
    installation: Installation, damage: str
) -> None:
    broken, sound = await installation.add(), await installation.add()
    for monitor in (broken, sound):
        await installation.ping(monitor)
    async with installation.database.system() as session:
        await session.execute(text(damage), {"id": UUID(broken["id"])})
    await installation.judge.judge_once()
    assert [(await installation.read(monitor))["status"] for monitor in (broken, sound)] == ["unknown", "up"]
    async with installation.database.system() as session:
        waiting = await session.execute(text("SELECT monitor_id FROM heartbeat_pings"))
        assert list(waiting.scalars()) == [UUID(broken["id"])]


@pytest.mark.parametrize("lag", [1.0, 2.5, 9.0])
async def test_a_grace_that_is_shorter_than_the_signs_of_the_receiver_waits_for_the_next_one(
    installation: Installation, lag: float
) -> None:
    """What is not written down yet is not a time in which nothing could be received."""
    clock, span, start = installation.clock, new_id(), to_datetime(installation.clock.now_ms())

    async def sign() -> None:
        async with installation.database.system() as session:
            await heartbeats.note_receiving(session, span, start, to_datetime(clock.now_ms()))

    monitor = await installation.add(period_seconds=10, grace_seconds=1)
    clock.advance(11.5 - lag)
    await sign()
    clock.advance(lag)
    await installation.judge.judge_once()
    assert await installation.results(monitor) == []
    await sign()
    await installation.judge.judge_once()
    assert [result["status"] for result in await installation.results(monitor)] == ["down"]
    assert [incident.state for incident in await installation.incidents()] == ["open"]
