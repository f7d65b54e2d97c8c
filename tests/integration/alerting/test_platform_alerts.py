"""Trouble of the platform reaches whoever runs it: once, and again when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from sqlalchemy import text

from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.services import platform_alerts
from shared.services.holds import sweep
from shared.services.platform_alerts import PlatformAlerts, clear_platform_alert, raise_platform_alert
from shared.testing.clock import FakeClock
from tests.integration.alerting.conftest import Scene, alerting, eventually
from tests.integration.channels.sinks import HttpSink


def seen(troubles: dict[str, str]) -> Callable[[], Awaitable[Mapping[str, str]]]:
    async def look() -> Mapping[str, str]:
        return dict(troubles)

    return look


async def test_an_alert_of_the_platform_is_told_once_and_ends(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    await scene.add_channel(config={"url": sink.url})
    clock = SystemClock()
    async with alerting(scene, connection):
        async with scene.database.system() as session:
            assert await raise_platform_alert(session, "k", "Workers are gone", "nobody pulls", clock.now_ms())
        async with scene.database.system() as session:
            assert not await raise_platform_alert(session, "k", "Workers are gone", "nobody pulls", clock.now_ms())
        await eventually(lambda: _heard(sink, 1))
        async with scene.database.system() as session:
            assert await clear_platform_alert(session, "k", clock.now_ms())
            assert not await clear_platform_alert(session, "other", clock.now_ms())
        await eventually(lambda: _heard(sink, 2))
    first, second = (arrival.json for arrival in sink.arrivals)
    assert [first["type"], second["type"]] == ["platform.alert", "platform.alert"]
    assert first["data"]["incident"]["message"] == "Workers are gone: nobody pulls"
    assert first["data"]["monitor"] is None
    assert [each["data"]["incident"]["state"] for each in (first, second)] == ["open", "resolved"]


async def _heard(sink: HttpSink, number: int) -> bool:
    await asyncio.sleep(0)
    return len(sink.accepted) >= number


async def _open_keys(scene: Scene) -> list[str]:
    async with scene.database.system() as session:
        query = "SELECT worker FROM incidents WHERE kind = 'platform' AND state <> 'resolved' ORDER BY worker"
        return list((await session.execute(text(query))).scalars())


async def test_two_processes_that_see_different_things_do_not_open_and_close_in_turns(scene: Scene) -> None:
    clock = FakeClock()
    first, second = PlatformAlerts(scene.database, clock), PlatformAlerts(scene.database, clock)
    troubles = {"watchdog: results": "nothing is stored"}
    for _ in range(30):
        await first.look(seen(troubles))
        await second.look(seen({}))
        assert await _open_keys(scene) == ["watchdog: results"]
        clock.advance(platform_alerts.LOOK_SECONDS)
    troubles.clear()
    clock.advance(platform_alerts.OVER_AFTER_MS / 1000 - 10)
    await second.look(seen({}))
    assert await _open_keys(scene) == ["watchdog: results"]
    clock.advance(20)
    await second.look(seen({}))
    assert await _open_keys(scene) == []
    async with scene.database.system() as session:
        assert await session.scalar(text("SELECT count(*) FROM incidents")) == 1


async def test_an_alert_of_the_platform_is_no_mass_failure(scene: Scene) -> None:
    clock = SystemClock()
    async with scene.database.system() as session:
        await raise_platform_alert(session, "k", "Trouble", "detail", clock.now_ms())
    async with scene.database.system() as session:
        await sweep(session, clock.now_ms() + 60_000)
    assert await _open_keys(scene) == ["k"]


async def test_the_organisation_that_runs_the_platform_is_told_and_no_other(scene: Scene) -> None:
    async with scene.database.system() as session:
        await raise_platform_alert(session, "k", "Trouble", "detail", SystemClock().now_ms())
        owner: UUID | None = await session.scalar(text("SELECT organisation_id FROM incidents"))
    assert owner == scene.organisation_id
