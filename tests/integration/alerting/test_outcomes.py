"""Every attempt ends with an outcome, whatever the other side answers and whatever is wrong with our own rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from shared.messaging.connect import NatsConnection
from shared.services import alerting as relaying
from shared.services.alerting import AlertRelay
from tests.integration.alerting.conftest import Scene, TakesNothing, alerting, eventually
from tests.integration.channels.sinks import Answer, HttpSink


@asynccontextmanager
async def mail_server(last_words: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """An SMTP server that answers a mail with ``last_words``; yields its port, and the mails it was given."""
    mails: list[bytes] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        async for line in reader:
            if line.upper().startswith(b"DATA"):
                writer.write(b"354 go on\r\n")
                mails.append(await reader.readuntil(b"\r\n.\r\n"))
                writer.write(last_words + b"\r\n")
            else:
                writer.write(b"250 mail\r\n")
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], mails
    finally:
        server.close()


@pytest.mark.parametrize(
    ("last_words", "state"),
    [(b"250 re\xe7u \0", "delivered"), (b"550 refus\xe9 \0", "failed")],
    ids=["taken", "refused"],
)
async def test_an_answer_that_is_no_text_is_an_outcome(
    scene: Scene, connection: NatsConnection, last_words: bytes, state: str
) -> None:
    async with mail_server(last_words) as (port, mails), alerting(scene, connection):
        smtp = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "tocsin@ops.example"}
        await scene.add_channel("email", config={"to": ["oncall@shop.example"], "smtp": smtp})
        await scene.open()
        await eventually(scene.has_settled)
    (row,) = await scene.deliveries()
    assert (row.state, row.attempts, len(mails)) == (state, 1, 1)
    assert "\N{REPLACEMENT CHARACTER}" in (row.response or "") + (row.error or "")


async def test_a_notification_that_cannot_be_read_fails_for_good_and_the_fallback_is_told(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    fallback = await scene.add_channel(config={"url": sink.url}, default=False, name="second")
    await scene.add_channel(config={"url": sink.url}, fallback_channel_id=fallback)
    incident = await scene.open()
    await AlertRelay(scene.database, TakesNothing(), scene.clock).look_once()
    async with scene.database.system() as session:
        await session.execute(text("UPDATE deliveries SET notification = '{}'"))
    async with alerting(scene, connection):
        await eventually(scene.has_settled)
    assert [(line["channel"], line["state"]) for line in await scene.timeline(incident)] == [
        ("webhook", "failed"),
        ("second", "failed"),
    ]


async def test_a_long_answer_of_a_service_that_took_the_notification_is_no_failure(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    sink.answers.append(Answer(200, body=b"<html>" * 100_000))
    await scene.add_channel(config={"url": sink.url})
    async with alerting(scene, connection):
        await scene.open()
        await eventually(scene.has_settled)
    assert len(sink.arrivals) == 1


async def test_a_queue_that_is_away_is_not_asked_without_a_pause(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "QUEUE_BATCH", 1)
    await scene.add_channel(config={"url": "https://ops.example/hook"})
    relay = AlertRelay(scene.database, TakesNothing(), scene.clock)
    await scene.open()
    await relay.look_once()
    assert not await relay.look_once()


async def test_many_incidents_of_a_tenant_with_many_channels_are_planned_at_one_look(scene: Scene) -> None:
    for number in range(100):
        await scene.add_channel(config={"url": "https://ops.example/hook"}, name=f"channel {number}")
    incidents = [await scene.open() for _ in range(40)]
    await AlertRelay(scene.database, TakesNothing(), scene.clock).look_once()
    rows = await scene.deliveries()
    assert len(rows) == 100 * len(incidents)
    assert [row.incident_id for row in rows[::100]] == [incident.id for incident in incidents]
    assert len({row.dedupe_key for row in rows}) == len(rows)


async def test_what_a_worker_was_sending_when_it_died_is_sent_again_under_its_id_and_marked(
    scene: Scene, connection: NatsConnection, sink: HttpSink
) -> None:
    await scene.add_channel(config={"url": sink.url})
    incident = await scene.open()
    await AlertRelay(scene.database, TakesNothing(), scene.clock).look_once()
    async with scene.database.system() as session:  # what a worker leaves behind that died in its first attempt
        await session.execute(
            text("UPDATE deliveries SET state = 'sending', attempts = 1, claimed_at = now() - interval '1 hour'")
        )
    async with alerting(scene, connection):
        await eventually(scene.has_settled)
    (row,) = await scene.deliveries()
    assert (row.state, row.attempts, row.possibly_duplicated) == ("delivered", 2, True)
    assert [arrival.headers["webhook-id"].removeprefix("msg_") for arrival in sink.arrivals] == [row.id.hex]
    assert (await scene.timeline(incident))[0]["possibly_duplicated"] is True
