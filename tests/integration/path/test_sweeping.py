"""The sweeper of a worker: decides alerts that wait, finds blind monitors, and outlives a database that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from monitoring_worker.sweeping import LOOK_SECONDS, IncidentSweeper
from shared.db.session import Database
from shared.testing.tocsin import eventually
from tests.integration.db.tenants import add_organisation
from tests.integration.path.scene import Scene, make_scene


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


@asynccontextmanager
async def sweeping(scene: Scene, database: Database | None = None) -> AsyncIterator[None]:
    task = asyncio.create_task(IncidentSweeper(database or scene.database, scene.clock).run())
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_alert_that_waits_is_decided_by_one_of_several_sweepers(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "F", worker="w1")
    scene.clock.advance(2)
    told: list[str] = []

    async def is_told() -> bool:
        told.extend(await scene.told())
        return bool(told)

    async with sweeping(scene), sweeping(scene), sweeping(scene):
        await eventually("the alert is let go", is_told)
    assert told == ["opened"]


async def test_a_monitor_that_nobody_sees_turns_unknown_and_incidents_are_counted(scene: Scene) -> None:
    failing, lost = await scene.monitor(), await scene.monitor()
    await scene.say(failing, "F")
    await scene.say(lost, "S")

    async def is_unknown() -> bool:
        scene.clock.advance(LOOK_SECONDS)
        return await scene.shown(lost) == "unknown"

    async with sweeping(scene):
        await eventually("the monitor is unknown", is_unknown)
    assert REGISTRY.get_sample_value("tocsin_incidents_open") == 1


async def test_a_database_that_is_away_does_not_end_the_sweeper(scene: Scene) -> None:
    with capture_logs() as lines:

        async def is_said() -> bool:
            return "incidents could not be swept" in [line["event"] for line in lines]

        async with (
            Database("postgresql://tocsin@127.0.0.1:1/tocsin", application_name="tests") as away,
            sweeping(scene, away),
        ):
            await eventually("it is said", is_said)
