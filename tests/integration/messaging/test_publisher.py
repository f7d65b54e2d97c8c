"""Every publish is settled: with a receipt, a refusal, or "unknown" at its deadline."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg

from shared.contracts.names import CHECKS_STREAM
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.errors import ConnectionLostError, PublishRejectedError, PublishUnknownError
from shared.messaging.publisher import Publisher, PublishReceipt
from shared.messaging.streams import ensure_streams
from shared.testing.nats import FlakyProxy, NatsServer
from tests.integration.messaging.conftest import until


async def test_a_message_is_stored_once_per_id(publisher: Publisher, connection: NatsConnection) -> None:
    first = await publisher.send("results.eu.a", b"1", message_id="slot")
    again = await publisher.send("results.eu.a", b"1", message_id="slot")
    assert first == PublishReceipt(sequence=1, duplicate=False)
    assert again == PublishReceipt(sequence=1, duplicate=True)
    assert (publisher.stored, publisher.duplicates) == (1, 1)
    assert (await connection.js.stream_info("RESULTS")).state.messages == 1


async def test_a_second_check_of_a_monitor_is_refused_as_occupied(publisher: Publisher) -> None:
    await publisher.send("checks.eu.a", b"", message_id="1")
    with pytest.raises(PublishRejectedError) as refusal:
        await publisher.send("checks.eu.a", b"", message_id="2")
    assert refusal.value.is_occupied


async def test_a_full_stream_is_refused_but_not_occupied(connection: NatsConnection, publisher: Publisher) -> None:
    await ensure_streams(connection.js, results_max_bytes=500)
    futures = [await publisher.publish(f"results.eu.{number}", bytes(100)) for number in range(20)]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, PublishRejectedError)]
    assert 0 < len(refusals) < 20
    assert {refusal.err_code for refusal in refusals} == {10077}
    assert not any(refusal.is_occupied for refusal in refusals)


async def test_refusals_never_use_the_window_up(connection: NatsConnection) -> None:
    async with Publisher(connection, window=50) as publisher:
        await publisher.send("checks.eu.a", b"")
        async with asyncio.timeout(60):
            futures = [await publisher.publish("checks.eu.a", b"") for _ in range(2000)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(outcome, PublishRejectedError) for outcome in outcomes)
        await publisher.send("checks.eu.b", b"")
        assert (publisher.in_flight, publisher.rejected, publisher.stored) == (0, 2000, 2)


async def test_a_missing_stream_is_unknown_at_once(connection: NatsConnection, publisher: Publisher) -> None:
    await connection.js.delete_stream(CHECKS_STREAM)
    async with asyncio.timeout(10):
        with pytest.raises(PublishUnknownError, match="nothing listens"):
            await publisher.send("checks.eu.a", b"")


@pytest.mark.parametrize(
    ("subject", "payload"),
    [("checks.eu.a", bytes(2_000_000)), ("checks eu", b"")],
    ids=["too large", "bad subject"],
)
async def test_what_can_never_be_sent_is_refused(publisher: Publisher, subject: str, payload: bytes) -> None:
    with pytest.raises(PublishRejectedError):
        await publisher.send(subject, payload)
    assert publisher.in_flight == 0


async def test_a_publish_into_a_black_hole_is_unknown_and_its_repetition_a_duplicate(
    server: NatsServer, proxy: FlakyProxy
) -> None:
    connection = await connect([proxy.url], name="scheduler", buffer_writes=False)
    await ensure_streams(connection.js)
    async with Publisher(connection, window=4, timeout=0.5) as publisher:
        proxy.black_hole()
        loop = asyncio.get_running_loop()
        started = loop.time()
        # Three times the window: each third has to time out before the next one gets its place.
        futures = [await publisher.publish(f"checks.eu.{n}", b"", message_id=str(n)) for n in range(12)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(outcome, PublishUnknownError) for outcome in outcomes)
        assert loop.time() - started < 5, "each for itself would take six seconds"
        proxy.heal()
        receipt = await publisher.send("checks.eu.11", b"", message_id="11")
        assert receipt.duplicate  # the late write had arrived
    await connection.close()


async def test_a_publish_without_a_connection_fails_at_once_when_writes_are_not_buffered(
    server: NatsServer,
) -> None:
    connection = await connect([server.url], name="scheduler", buffer_writes=False)
    async with Publisher(connection, window=2, timeout=60) as publisher:
        await server.kill()
        await until(lambda: not connection.is_connected)
        for _ in range(10):
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionLostError):
                    await publisher.send("checks.eu.a", b"")
        assert publisher.in_flight == 0
    await connection.close()


async def test_what_was_on_its_way_when_the_connection_broke_does_not_wait_for_its_deadline(
    server: NatsServer,
) -> None:
    connection = await connect([server.url], name="scheduler", buffer_writes=False)
    await ensure_streams(connection.js)
    async with Publisher(connection, timeout=3600) as publisher:
        server.freeze()
        waiting = await publisher.publish("checks.eu.a", b"", message_id="slot")
        await server.kill()
        await server.start()
        with pytest.raises(ConnectionLostError):
            await waiting
        assert (await publisher.send("checks.eu.a", b"", message_id="slot")).sequence == 1
    await connection.close()


async def silent(_: Msg) -> None:
    """Listens, and gives no answer."""


@pytest.mark.parametrize("down", [False, True], ids=["silent", "down"])
async def test_whose_silence_it_was_is_told_at_the_deadline(server: NatsServer, down: bool) -> None:
    """A stream that does not answer is gone round; our own lost connection is not held against it."""
    connection = await connect([server.url], name="scheduler", buffer_writes=False)
    await connection.client.subscribe("quiet", cb=silent)
    async with Publisher(connection, timeout=0.3) as publisher:
        waiting = await publisher.publish("quiet", b"")
        if down:
            await server.kill()
        [error] = await asyncio.gather(waiting, return_exceptions=True)
        assert type(error) is (ConnectionLostError if down else PublishUnknownError)
    await connection.close()


async def test_room_is_told_before_a_publish_would_wait(connection: NatsConnection) -> None:
    await connection.client.subscribe("quiet", cb=silent)
    async with Publisher(connection, window=2, timeout=0.3) as publisher:
        room, waiting = [publisher.has_room], []
        for _ in range(2):
            waiting.append(await publisher.publish("quiet", b""))
            room.append(publisher.has_room)
        await asyncio.wait(waiting)
        assert all(future.exception() for future in waiting)
        assert [*room, publisher.has_room] == [True, True, False, True]


async def test_a_caller_that_is_cancelled_gives_its_place_back(connection: NatsConnection) -> None:
    async with Publisher(connection, window=1, timeout=60) as publisher:
        sending = asyncio.create_task(publisher.send("checks.eu.a", b""))
        await asyncio.sleep(0)
        sending.cancel()
        async with asyncio.timeout(10):
            await publisher.send("checks.eu.b", b"")


async def test_stopping_waits_for_what_is_in_flight(connection: NatsConnection) -> None:
    before = asyncio.all_tasks()
    async with Publisher(connection) as publisher:
        futures = [await publisher.publish(f"checks.eu.{number}", b"") for number in range(200)]
    assert all(future.done() and future.exception() is None for future in futures)
    await until(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")
