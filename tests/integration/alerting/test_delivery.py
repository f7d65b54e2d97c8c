"""An incident reaches its channels: once each, in order, whatever the channel does meanwhile (NOTIF-01)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from shared.db.base import new_id
from shared.db.repositories import deliveries
from shared.domain import notification_retry
from shared.domain.incident import Severity
from shared.messaging.connect import NatsConnection
from shared.services import housekeeping
from shared.services.alerting import AlertRelay
from shared.testing.nats import free_port
from tests.integration.alerting.conftest import Scene, TakesNothing, alerting, eventually
from tests.integration.channels.sinks import Answer, Arrival, HttpSink, Judge

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def _accepted(sink: HttpSink, number: int) -> None:
    async def enough() -> bool:
        return len(sink.accepted) >= number

    await eventually(enough)


def _types(sink: HttpSink) -> list[str]:
    return [arrival.json["type"].partition(".")[2] for arrival in sink.accepted]


async def test_an_incident_is_told_when_it_opens_is_acknowledged_and_ends(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    await scene.add_channel(config={"url": sink.url, "secret": SECRET})
    async with alerting(scene, connection):
        incident = await scene.open()
        await _accepted(sink, 1)
        incident = await scene.acknowledge(incident)
        await _accepted(sink, 2)
        await scene.resolve(incident)
        await _accepted(sink, 3)
        await eventually(scene.has_settled)
    assert _types(sink) == ["opened", "acknowledged", "resolved"]
    opened, acknowledged, resolved = (arrival.json["data"] for arrival in sink.arrivals)
    assert opened["incident"]["id"] == str(incident.id)
    assert (opened["incident"]["state"], opened["monitor"]["name"]) == ("open", "Shop")
    assert acknowledged["incident"]["acknowledged_by"] == "alice"
    assert resolved["incident"]["state"] == "resolved"
    for arrival in sink.arrivals:
        Webhook(SECRET).verify(arrival.body, arrival.headers)
    assert [line["state"] for line in await scene.timeline(incident)] == ["delivered"] * 3


def _each_once(status: int, headers: dict[str, str]) -> Judge:
    """Refuses each notification the first time it comes."""
    seen: set[str] = set()

    def judge(arrival: Arrival) -> Answer:
        is_new = arrival.headers["webhook-id"] not in seen
        seen.add(arrival.headers["webhook-id"])
        return Answer(status, headers) if is_new else Answer()

    return judge


RETRY_AFTER = {"seconds": "3", "far": "999999", "garbage": "soon"}
SHORTEST_WAIT = {"seconds": 3.0, "far": 4.0, "garbage": 1.7, "date": 0.0}


async def test_thirty_incidents_at_channels_that_ask_to_wait_are_all_told_once_and_not_too_early(
    scene: Scene, connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_retry, "LONGEST_ASKED_SECONDS", 4.0)
    async with AsyncExitStack() as stack:
        now, moment = datetime.now(UTC), time.monotonic()
        date = (now + timedelta(seconds=4)).replace(microsecond=0)  # not beyond the limit above
        not_before = moment + (date - now).total_seconds()
        sinks = {}
        for form, value in {**RETRY_AFTER, "date": format_datetime(date, usegmt=True)}.items():
            sink = sinks[form] = await stack.enter_async_context(HttpSink(_each_once(429, {"Retry-After": value})))
            await scene.add_channel(config={"url": sink.url}, name=form)
        async with alerting(scene, connection):
            incidents = await asyncio.gather(*(scene.open() for _ in range(30)))
            for sink in sinks.values():
                await _accepted(sink, 30)
            await eventually(scene.has_settled)
    for form, sink in sinks.items():
        told = Counter(arrival.json["data"]["incident"]["id"] for arrival in sink.accepted)
        assert told == Counter(str(incident.id) for incident in incidents), form
        refused = {each.headers["webhook-id"]: each.at for each in sink.arrivals if each.answered == 429}
        assert len(refused) == 30, form
        waits = [arrival.at - refused[arrival.headers["webhook-id"]] for arrival in sink.accepted]
        assert min(waits) >= SHORTEST_WAIT[form], form
    assert min(arrival.at for arrival in sinks["date"].accepted) >= not_before
    rows = await scene.deliveries()
    assert {(row.state, row.attempts, row.possibly_duplicated) for row in rows} == {("delivered", 2, False)}


async def test_a_channel_that_is_away_for_a_while_is_told_once_it_is_back_and_in_order(
    scene: Scene, connection: NatsConnection
) -> None:
    port = free_port()
    await scene.add_channel(config={"url": f"http://127.0.0.1:{port}/hook"})
    sink = HttpSink(port=port)
    async with alerting(scene, connection):
        incident = await scene.open()
        incident = await scene.resolve(incident)

        async def has_failed() -> bool:
            return bool(await scene.deliveries(state="retrying"))

        await eventually(has_failed)
        await scene.reopen(incident)
        await sink.start()
        try:
            await _accepted(sink, 3)
            await eventually(scene.has_settled)
        finally:
            await sink.stop()
    assert _types(sink) == ["opened", "resolved", "opened"]
    assert not any(row.possibly_duplicated for row in await scene.deliveries())


async def test_a_lost_answer_is_asked_for_again_under_the_same_id_and_marked(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    sink.answers.append(Answer(hang_up=True))
    await scene.add_channel(config={"url": sink.url, "secret": SECRET})
    async with alerting(scene, connection):
        incident = await scene.open()
        await _accepted(sink, 1)
        await eventually(scene.has_settled)
    first, second = sink.arrivals
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    (row,) = await scene.deliveries()
    assert (row.state, row.attempts, row.possibly_duplicated) == ("delivered", 2, True)
    assert (await scene.timeline(incident))[0]["possibly_duplicated"] is True


async def test_what_a_channel_refuses_goes_to_its_fallback_and_so_does_the_end(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    async with HttpSink(lambda _: Answer(404)) as gone:
        second = await scene.add_channel(config={"url": sink.url}, default=False, name="second")
        first = await scene.add_channel(config={"url": gone.url}, fallback_channel_id=second)
        async with alerting(scene, connection):
            incident = await scene.open()
            await scene.resolve(incident)
            await _accepted(sink, 2)
            await eventually(scene.has_settled)
        assert len(gone.arrivals) == 1
    assert _types(sink) == ["opened", "resolved"]
    states = [(row.channel_id == first, row.event.partition(".")[2], row.state) for row in await scene.deliveries()]
    assert sorted(states) == [
        (False, "opened", "delivered"),
        (False, "resolved", "delivered"),
        (True, "opened", "failed"),
        (True, "resolved", "skipped"),
    ]
    channel = await scene.channel(first)
    assert channel.failing_since is not None
    assert channel.last_error == "the service answered 404"


async def test_state_03_who_was_not_told_of_the_beginning_is_not_told_of_the_end(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    await scene.add_channel(config={"url": sink.url})
    async with alerting(scene, connection):
        quiet = await scene.open(silent=True)
        explained = await scene.open(affected_by=new_id())
        for incident in (quiet, explained):
            await scene.resolve(incident)
        heard = await scene.open()
        await _accepted(sink, 1)
        await eventually(scene.has_settled)
    assert [arrival.json["data"]["incident"]["id"] for arrival in sink.arrivals] == [str(heard.id)]


async def test_an_alert_that_is_held_back_waits(scene: Scene, connection: NatsConnection, sink: HttpSink) -> None:
    await scene.add_channel(config={"url": sink.url})
    async with alerting(scene, connection):
        held = await scene.open(alert_not_before_ms=scene.clock.now_ms() + 86_400_000)
        free = await scene.open()
        await _accepted(sink, 1)
        assert sink.arrivals[0].json["data"]["incident"]["id"] == str(free.id)
        async with scene.database.system() as session:
            await session.execute(text("UPDATE incidents SET alert_not_before = NULL"))
        await _accepted(sink, 2)
        assert sink.arrivals[1].json["data"]["incident"]["id"] == str(held.id)


async def test_a_delivery_that_the_queue_has_lost_is_handed_over_again(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    sink.answers.append(Answer(503))
    await scene.add_channel(config={"url": sink.url})
    async with alerting(scene, connection):
        await scene.open()

        async def waits() -> bool:
            return bool(await scene.deliveries(state="retrying"))

        await eventually(waits)
        await connection.js.purge_stream("TASKS")
        async with scene.database.system() as session:  # what two minutes do
            await session.execute(text("UPDATE deliveries SET queue_after = now(), not_before = now()"))
        await _accepted(sink, 1)
        await eventually(scene.has_settled)
    (row,) = await scene.deliveries()
    assert (row.state, row.queued) == ("delivered", 2)


async def test_an_incident_that_gets_worse_is_told_again_and_ends_for_everybody_who_heard_of_it(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    async with HttpSink() as pager:
        mild = await scene.add_channel(config={"url": sink.url}, default=False)
        loud = await scene.add_channel(config={"url": pager.url}, default=False)
        await scene.add_policy(match={"severities": ["degraded"]}, steps=[{"channels": [str(mild)]}])
        await scene.add_policy(match={"severities": ["down"]}, steps=[{"channels": [str(loud)]}])
        async with alerting(scene, connection):
            incident = await scene.open(severity=Severity.DEGRADED)
            await _accepted(sink, 1)
            incident = await scene.worsen(incident)
            await _accepted(pager, 1)
            await scene.resolve(incident)
            await _accepted(pager, 2)
            await _accepted(sink, 2)
        assert _types(pager) == ["opened", "resolved"]
    assert _types(sink) == ["opened", "resolved"]


async def test_a_step_whose_channels_are_gone_tells_the_default_channels(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    gone = await scene.add_channel(config={"url": sink.url}, default=False)
    await scene.add_policy(steps=[{"channels": [str(gone)]}])
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.channels.delete(session, gone)
    async with alerting(scene, connection):
        unheard = await scene.open()

        async def is_noted() -> bool:
            return [line["state"] for line in await scene.timeline(unheard)] == ["no_channel"]

        await eventually(is_noted)
        await scene.add_channel(config={"url": sink.url})
        await scene.open()
        await _accepted(sink, 1)


async def test_a_template_that_fails_costs_nobody_an_alert(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    channel: UUID = await scene.add_channel(
        "slack", config={"url": sink.url}, templates={"body": "{{ monitor.name }} is {{ incident.severity }}"}
    )
    async with alerting(scene, connection):
        await scene.open()
        await _accepted(sink, 1)
        async with scene.database.system() as session:
            await session.execute(
                text('UPDATE channels SET templates = \'{"body": "{{ nothing }}"}\' WHERE id = :id'),
                {"id": channel},
            )
        await scene.open()
        await _accepted(sink, 2)
    assert b"Shop is down" in sink.arrivals[0].body
    assert b"503" in sink.arrivals[1].body


async def test_old_deliveries_are_forgotten_but_none_that_is_still_on_its_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "PURGED_AT_ONCE", 2)
    for number in range(3):
        await scene.add_channel("slack", config={"url": "https://slack.example/hook"}, name=f"chat {number}")
    await scene.open()
    relay = AlertRelay(scene.database, TakesNothing(), scene.clock)
    await relay.look_once()
    async with scene.database.system() as session:
        await session.execute(text("UPDATE deliveries SET created_at = now() - interval '100 days'"))
        assert await housekeeping.forget_deliveries(session, scene.clock, 90) == 0
        await session.execute(
            text("UPDATE deliveries SET state = 'delivered', settled_at = now(), queue_after = NULL")
        )
        assert await housekeeping.forget_deliveries(session, scene.clock, 90) == 3
