"""Streams, buckets and consumers come out as declared, whatever was there before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError
from structlog.testing import capture_logs

from shared.contracts.names import CHECKS_STREAM, RESULTS_STREAM
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import declared_streams
from shared.messaging.errors import StreamMismatchError
from shared.messaging.streams import ensure_consumer, ensure_recorder, ensure_streams
from shared.testing.nats import NatsServer


async def snapshot(js: JetStreamContext) -> dict[str, StreamConfig]:
    return {str(info.config.name): info.config for info in await js.streams_info()}


async def drift(js: JetStreamContext, stream: str, **changes: Any) -> None:
    config = (await js.stream_info(stream)).config
    await js.update_stream(config.evolve(**changes))


async def test_all_streams_are_created_as_declared(connection: NatsConnection) -> None:
    found = await snapshot(connection.js)
    assert set(found) == {str(stream.name) for stream in declared_streams()}
    checks, results = found[CHECKS_STREAM], found[RESULTS_STREAM]
    assert (checks.retention, checks.discard) == (RetentionPolicy.WORK_QUEUE, DiscardPolicy.NEW)
    assert (checks.max_msgs_per_subject, checks.discard_new_per_subject) == (1, True)
    assert (checks.duplicate_window, checks.max_age) == (120, 2 * 86_400)
    assert (results.retention, results.discard) == (RetentionPolicy.WORK_QUEUE, DiscardPolicy.NEW)
    leader = found["KV_tocsin_leader"]
    assert (leader.allow_msg_ttl, leader.subject_delete_marker_ttl, leader.max_msgs_per_subject) == (True, 60, 1)


async def test_the_buckets_are_key_value_buckets_for_every_client(connection: NatsConnection) -> None:
    bucket = await connection.js.key_value("tocsin_schedules")
    await bucket.put("key", b"value")
    assert (await bucket.get("key")).value == b"value"


async def test_declaring_again_changes_nothing(connection: NatsConnection) -> None:
    before = await snapshot(connection.js)
    with capture_logs() as logs:
        await ensure_streams(connection.js)
    assert logs == []
    assert await snapshot(connection.js) == before


async def test_five_processes_may_declare_at_once(server: NatsServer) -> None:
    connections = [await connect([server.url], name=f"process {n}", buffer_writes=False) for n in range(5)]

    async def declare(js: JetStreamContext) -> None:
        await ensure_streams(js)
        await ensure_consumer(js, "eu")
        await ensure_recorder(js)

    await asyncio.gather(*(declare(connection.js) for connection in connections))
    await declare(connections[0].js)
    for connection in connections:
        await connection.close()


async def test_a_process_that_is_overtaken_by_another_release_corrects_its_stream(
    connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drift(connection.js, CHECKS_STREAM, max_age=3600.0)
    look = connection.js.stream_info
    looks: list[str] = []

    async def look_too_early(name: str) -> StreamInfo:
        looks.append(name)
        if looks == [CHECKS_STREAM]:
            raise NotFoundError(code=404)
        return await look(name)

    monkeypatch.setattr(connection.js, "stream_info", look_too_early)
    await ensure_streams(connection.js)
    assert (await look(CHECKS_STREAM)).config.max_age == 2 * 86_400


DRIFTS: list[tuple[str, dict[str, Any]]] = [
    (CHECKS_STREAM, {"max_msgs_per_subject": 10}),
    (CHECKS_STREAM, {"max_age": 3600.0}),
    (CHECKS_STREAM, {"duplicate_window": 1.0}),
    (CHECKS_STREAM, {"discard": DiscardPolicy.OLD, "discard_new_per_subject": False}),
    (CHECKS_STREAM, {"subjects": ["checks.>", "more.>"]}),
    (RESULTS_STREAM, {"discard": DiscardPolicy.OLD}),
    (RESULTS_STREAM, {"max_msgs": 10}),
    ("KV_tocsin_leader", {"subject_delete_marker_ttl": 1.0}),
]


@pytest.mark.parametrize(("stream", "changes"), DRIFTS, ids=lambda value: str(value)[:50])
async def test_what_drifted_is_corrected_and_said(
    stream: str, changes: dict[str, Any], connection: NatsConnection
) -> None:
    before = await snapshot(connection.js)
    await drift(connection.js, stream, **changes)
    assert await snapshot(connection.js) != before
    with capture_logs() as logs:
        await ensure_streams(connection.js)
    assert await snapshot(connection.js) == before
    assert [(entry["event"], entry["stream"]) for entry in logs] == [("stream settings corrected", stream)]
    assert next(iter(changes)) in logs[0]["changed"]


async def test_what_the_operator_added_stays(connection: NatsConnection) -> None:
    await drift(connection.js, RESULTS_STREAM, max_bytes=1_000_000, description="ours")
    await ensure_streams(connection.js)
    found = (await snapshot(connection.js))[RESULTS_STREAM]
    assert (found.max_bytes, found.description) == (1_000_000, "ours")
    await ensure_streams(connection.js, results_max_bytes=2_000_000)
    assert (await snapshot(connection.js))[RESULTS_STREAM].max_bytes == 2_000_000


async def test_a_setting_that_cannot_be_changed_stops_with_one_line(connection: NatsConnection) -> None:
    await connection.js.delete_stream(RESULTS_STREAM)
    await connection.js.add_stream(name=RESULTS_STREAM, subjects=["results.>"], retention="limits")
    with pytest.raises(StreamMismatchError) as failure:
        await ensure_streams(connection.js)
    text = str(failure.value)
    assert "stream RESULTS" in text
    assert "retention is limits, wanted workqueue" in text
    assert "delete it" in text
    assert "\n" not in text


async def test_a_stream_that_takes_our_subjects_stops_with_one_line(connection: NatsConnection) -> None:
    await connection.js.delete_stream(RESULTS_STREAM)
    await connection.js.add_stream(name="THEIRS", subjects=["results.eu.*"])
    with pytest.raises(StreamMismatchError, match=r"stream RESULTS: cannot be created .*subjects overlap"):
        await ensure_streams(connection.js)


async def test_consumers_are_corrected_or_refused_like_streams(connection: NatsConnection) -> None:
    js = connection.js
    await ensure_consumer(js, "eu")
    wanted = (await js.consumer_info(CHECKS_STREAM, "worker-eu")).config
    assert (wanted.ack_wait, wanted.max_deliver, wanted.max_ack_pending) == (2.5, -1, 20_000)
    await js.add_consumer(CHECKS_STREAM, wanted.evolve(ack_wait=30.0, max_ack_pending=5))
    await ensure_consumer(js, "eu")
    assert (await js.consumer_info(CHECKS_STREAM, "worker-eu")).config == wanted

    await js.delete_consumer(CHECKS_STREAM, "worker-eu")
    push = ConsumerConfig(durable_name="worker-eu", deliver_subject="somewhere", filter_subject="checks.eu.>")
    await js.add_consumer(CHECKS_STREAM, push)
    with pytest.raises(StreamMismatchError, match=r"consumer worker-eu: .*deliver_subject is somewhere"):
        await ensure_consumer(js, "eu")


async def test_a_consumer_without_its_stream_names_the_stream(connection: NatsConnection) -> None:
    await connection.js.delete_stream(CHECKS_STREAM)
    with pytest.raises(StreamMismatchError, match="stream CHECKS is missing"):
        await ensure_consumer(connection.js, "eu")
