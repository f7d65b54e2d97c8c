"""Trouble of the platform reaches whoever runs it: once, and again when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import msgspec
from sqlalchemy import text

from shared.db.repositories import incidents
from shared.domain import incident as machine
from shared.domain.clock import SystemClock, to_datetime
from shared.domain.incident import IncidentKind
from shared.domain.mass_failure import CAUSE
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import MessagingError
from shared.services import platform_alerts
from shared.services.holds import sweep
from shared.services.platform_alerts import PlatformAlerts, clear_platform_alert, raise_platform_alert
from shared.tasks.letters import Attempt, DeadLetter, LetterError, letter_id
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


async def test_work_that_failed_for_good_is_told_once_for_its_task(scene: Scene) -> None:
    alerts = PlatformAlerts(scene.database, SystemClock())
    for number in range(3):
        await alerts.on_letter(letter(number))
    assert await _open_keys(scene) == ["dead letters: deliver_notification"]
    async with scene.database.system() as session:
        message = await session.scalar(text("SELECT message FROM incidents"))
    assert message == "Work of the task deliver_notification failed for good: answered 404; see the dead letters"


def letter(number: int) -> DeadLetter:
    failed = Attempt(1_796_040_000_000 + number, "http_404", "answered 404", "worker:1")
    return DeadLetter(
        id=letter_id(failed.at_ms, str(number)),
        task="deliver_notification",
        task_id=str(number),
        organisation_id=None,
        arguments=msgspec.Raw(b"{}"),
        error=LetterError(failed.error_kind, failed.message),
        attempts=(failed,),
        failed_at=to_datetime(failed.at_ms),
        worker=failed.worker,
        subject="tasks.platform.deliver_notification",
    )


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


async def test_a_source_that_cannot_be_asked_silences_no_other_and_ends_nothing(scene: Scene) -> None:
    async def away() -> Mapping[str, str]:
        raise MessagingError("the queue does not answer")

    clock = FakeClock()
    alerts = PlatformAlerts(scene.database, clock)
    await alerts.look(seen({"dead letters: work": "2 wait"}), seen({}))
    for _ in range(2):
        clock.advance(platform_alerts.OVER_AFTER_MS / 1000 + 1)
        await alerts.look(away, seen({"watchdog: watchdog": "it can't see"}))
        assert await _open_keys(scene) == ["dead letters: work", "watchdog: watchdog"]
    await alerts.look(seen({}), seen({}))
    assert await _open_keys(scene) == ["watchdog: watchdog"]


async def test_an_alert_that_somebody_ends_meanwhile_ends_once(scene: Scene) -> None:
    clock = SystemClock()

    async def clear() -> None:
        async with scene.database.system() as session:
            await clear_platform_alert(session, "k", clock.now_ms())

    async with scene.database.system() as session:
        await raise_platform_alert(session, "k", "Trouble", "detail", clock.now_ms())
        incident_id = await session.scalar(text("SELECT id FROM incidents"))
    await _end_by_hand_while(clear, scene, incident_id)


async def test_a_mass_failure_that_somebody_ends_meanwhile_ends_once(scene: Scene) -> None:
    async def look() -> None:
        async with scene.database.system() as session:
            await sweep(session, scene.clock.now_ms())

    # It explains nothing, so it has passed.
    incident = await scene.open(kind=IncidentKind.PLATFORM, cause=CAUSE, worker="w1", region="default")
    await _end_by_hand_while(look, scene, incident.id)


async def _end_by_hand_while(work: Callable[[], Awaitable[None]], scene: Scene, incident_id: UUID) -> None:
    """A person ends an incident whose row ``work`` waits for, and nobody ends it again."""
    now_ms = scene.clock.now_ms()

    async def waits() -> bool:
        async with scene.database.system() as session:
            return bool(await session.scalar(text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")))

    async with scene.database.system() as session:
        incident = await incidents.lock(session, incident_id)
        assert incident
        working = asyncio.ensure_future(work())
        await eventually(waits)
        ended, event = machine.resolved(incident, now_ms, now_ms, "alice")
        await incidents.save(session, [ended])
        await incidents.write_events(session, [event])
    await working
    async with scene.database.system() as session:
        kinds = await session.execute(text("SELECT kind, actor FROM incident_events ORDER BY id"))
        assert [tuple(row) for row in kinds] == [("opened", None), ("resolved", "alice")]
