"""Steps, reminders and quiet hours as time passes; the clock is the test's, the rows are real."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from shared.db.repositories.deliveries import Queued
from shared.messaging.errors import PublishUnknownError
from shared.services.alerting import AlertRelay
from shared.services.notifications import notification_of
from shared.testing.clock import FakeClock
from tests.integration.alerting.conftest import Scene


@dataclass
class PlayedQueue:
    """Stands where NATS would: notes what it is given, or does not take it."""

    taken: list[UUID] = field(default_factory=list)
    is_away: bool = False

    async def put(self, delivery: Queued) -> None:
        if self.is_away:
            raise PublishUnknownError("no answer")
        self.taken.append(delivery.id)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def scene(scene: Scene, clock: FakeClock) -> Scene:
    scene.clock = clock
    return scene


@pytest.fixture
def queue() -> PlayedQueue:
    return PlayedQueue()


@pytest.fixture
def relay(scene: Scene, clock: FakeClock, queue: PlayedQueue) -> AlertRelay:
    return AlertRelay(scene.database, queue, clock)


SLACK = {"url": "https://slack.example/hook"}


async def told(scene: Scene) -> list[tuple[str, str]]:
    return [(row.channel_name, row.event.partition(".")[2]) for row in await scene.deliveries()]


async def test_steps_are_taken_as_time_passes_until_somebody_acknowledges(
    scene: Scene, relay: AlertRelay, clock: FakeClock
) -> None:
    first = await scene.add_channel("slack", config=SLACK, name="first", default=False)
    second = await scene.add_channel("slack", config=SLACK, name="second", default=False)
    steps = [{"channels": [str(first)]}, {"delay_seconds": 300, "channels": [str(second)]}]
    await scene.add_policy(steps=steps, repeat=1, repeat_after_seconds=300, reminder_seconds=240)
    incident = await scene.open()
    heard: list[tuple[int, str, str]] = []
    for second_of in range(0, 700, 20):
        known = len(heard)
        await relay.look_once()
        heard += [(second_of, *each) for each in (await told(scene))[known:]]
        if second_of == 620:
            await scene.acknowledge(incident)
        clock.advance(20)
    assert heard == [
        (0, "first", "opened"),
        (240, "first", "reminder"),
        (300, "second", "opened"),
        (480, "first", "reminder"),
        (480, "second", "reminder"),
        (600, "first", "reminder"),
        (640, "first", "acknowledged"),
        (640, "second", "acknowledged"),
    ]


async def test_a_step_in_quiet_hours_waits_and_is_not_taken_when_it_is_over_by_then(
    scene: Scene, relay: AlertRelay, clock: FakeClock
) -> None:
    # The clock of the test starts at 08:00 UTC.
    quiet = {"timezone": "UTC", "from": "07:00", "to": "09:00"}
    await scene.add_channel("slack", config=SLACK, name="ops")
    await scene.add_policy(steps=[{"quiet_hours": quiet}])
    short, long = await scene.open(), await scene.open()
    for minute in range(70):
        await relay.look_once()
        if minute == 30:
            assert await told(scene) == []
            await scene.resolve(short)
        clock.advance(60)
    assert await told(scene) == [("ops", "opened")]
    await scene.resolve(long)
    await relay.look_once()
    assert await told(scene) == [("ops", "opened"), ("ops", "resolved")]


async def test_a_policy_is_chosen_by_tags_and_severity(scene: Scene, relay: AlertRelay) -> None:
    shop = await scene.add_channel("slack", config=SLACK, name="shop", default=False)
    await scene.add_channel("slack", config=SLACK, name="everybody")
    await scene.add_policy(match={"tags": {"team": "shop"}}, steps=[{"channels": [str(shop)]}])
    await scene.open(await scene.add_monitor(tags={"team": "shop"}))
    await relay.look_once()
    await scene.open(await scene.add_monitor(tags={"team": "mail"}))
    await relay.look_once()
    assert await told(scene) == [("shop", "opened"), ("everybody", "opened")]


async def test_relays_side_by_side_make_each_delivery_once(
    scene: Scene, clock: FakeClock, queue: PlayedQueue
) -> None:
    for number in range(2):
        await scene.add_channel("slack", config=SLACK, name=str(number))
    monitors = [await scene.add_monitor() for _ in range(20)]
    relays = [AlertRelay(scene.database, queue, clock) for _ in range(4)]
    incidents = [await scene.open(monitor) for monitor in monitors]
    for incident in incidents:
        await scene.resolve(incident)
    for _ in range(5):
        await asyncio.gather(*(relay.look_once() for relay in relays))
    rows = await scene.deliveries()
    assert len(rows) == len({row.dedupe_key for row in rows}) == 80
    assert sorted(queue.taken) == sorted(row.id for row in rows)
    for incident in incidents:
        order = [row.event for row in rows if row.incident_id == incident.id]
        assert order == ["incident.opened"] * 2 + ["incident.resolved"] * 2


async def test_what_the_queue_did_not_take_is_handed_over_later(
    scene: Scene, relay: AlertRelay, queue: PlayedQueue, clock: FakeClock
) -> None:
    await scene.add_channel("slack", config=SLACK)
    await scene.open()
    queue.is_away = True
    await relay.look_once()
    assert queue.taken == []
    queue.is_away = False
    await relay.look_once()
    assert len(queue.taken) == 1
    await relay.look_once()
    assert len(queue.taken) == 1
    clock.advance(61)
    await relay.look_once()
    assert len(queue.taken) == 2, "without an outcome it is handed over again after a minute"


async def test_a_change_that_cannot_be_planned_holds_up_no_other(
    scene: Scene, relay: AlertRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.add_channel("slack", config=SLACK)
    broken = await scene.open(message="broken")
    await scene.open()

    def fail(incident: object, *rest: object) -> object:
        if getattr(incident, "message", "") == "broken":
            raise RuntimeError("a fault of ours")
        return notification_of(incident, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("shared.services.alert_planning.notification_of", fail)
    for _ in range(4):
        await relay.look_once()
    assert [row.incident_id == broken.id for row in await scene.deliveries()] == [False]
