"""What a pull loop promises about its messages, its batches and its end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from shared.contracts.names import CHECKS_STREAM, RESULTS_STREAM
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import ACK_WAIT_SECONDS
from shared.messaging.errors import ConsumerLostError
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_consumer, ensure_recorder
from shared.testing.nats import FlakyProxy, NatsServer
from shared.testing.tocsin import eventually
from tests.integration.messaging.conftest import until
from tests.integration.messaging.reading import CONSUMER, pull_loop, reading, send_until_stored


async def test_an_idle_loop_shows_life_and_delivers_at_once(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    loop = asyncio.get_running_loop()
    async with reading(connection, heartbeat=0.5, expires=1.0) as reader:
        signs: set[float] = set()

        def has_lived_on() -> bool:
            signs.add(reader.loop.last_alive)
            return len(signs) > 5  # two requests have run out unused

        async def delay(body: bytes) -> float:
            sent = loop.time()
            await send_until_stored(publisher, body)
            await until(lambda: body in reader.bodies)
            return loop.time() - sent

        await until(has_lived_on, what="signs of life")
        # The best of some is what it costs; what the others took longer was the machine.
        assert min([await delay(b"%d" % number) for number in range(5)]) < 0.5
        assert reader.loop.reinitialisations == 0


async def test_every_message_comes_once_when_the_reader_is_slower_than_the_batch(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    wanted = {str(number).encode() for number in range(300)}
    async with reading(connection, batch=8) as reader:
        for body in wanted:
            await publisher.publish(f"checks.eu.{body.decode()}", body)
        await until(lambda: len(reader.bodies) == len(wanted))
        assert set(reader.bodies) == wanted
        assert set(reader.deliveries) == {1}
        assert reader.loop.reinitialisations == 0


async def test_a_full_buffer_is_not_taken_for_a_deaf_consumer(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    for number in range(20):
        await send_until_stored(publisher, str(number).encode())
    loop = asyncio.get_running_loop()
    async with pull_loop(connection, batch=4, heartbeat=0.2) as pulling:
        await until(lambda: pulling.in_hand == 4)
        busy_until = loop.time() + 2.5  # longer than the silence that is allowed
        await until(lambda: loop.time() > busy_until)
        assert pulling.silence == 0
        assert pulling.reinitialisations == 0


async def test_a_message_in_hand_is_not_redelivered_and_a_dropped_one_is(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    impatient = (await connection.js.consumer_info(CHECKS_STREAM, CONSUMER)).config.evolve(ack_wait=3.0)
    await connection.js.add_consumer(CHECKS_STREAM, impatient)
    await send_until_stored(publisher, b"slow")
    async with pull_loop(connection, keep_alive=0.3) as holder:
        held = await anext(holder.messages())
        async with reading(connection) as other:
            await asyncio.sleep(4)  # longer than it waits for an acknowledgement
            assert other.bodies == []
            assert holder.in_hand == 1
            await holder.close()  # as if the process had died
            await until(lambda: other.bodies == [b"slow"])
    assert held.metadata.num_delivered == 1


def test_a_holder_has_three_tries_before_its_message_is_redelivered() -> None:
    keep_alive = inspect.signature(PullLoop).parameters["keep_alive"].default
    assert 3 * keep_alive < ACK_WAIT_SECONDS < 5


async def test_messages_nobody_took_are_handed_back_at_once(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    patient = (await connection.js.consumer_info(CHECKS_STREAM, CONSUMER)).config.evolve(ack_wait=600.0)
    await connection.js.add_consumer(CHECKS_STREAM, patient)
    for number in range(10):
        await send_until_stored(publisher, str(number).encode())
    async with pull_loop(connection) as first:
        taken = await anext(first.messages())
        await until(lambda: first.in_hand == 10)
        await taken.ack()
    async with reading(connection) as second:
        await until(lambda: len(second.bodies) == 9)


async def test_a_message_that_is_on_its_way_to_a_loop_that_stops_is_handed_back_at_once(
    connection: NatsConnection, publisher: Publisher, proxy: FlakyProxy
) -> None:
    await ensure_consumer(connection.js, "eu")
    patient = (await connection.js.consumer_info(CHECKS_STREAM, CONSUMER)).config.evolve(ack_wait=600.0)
    await connection.js.add_consumer(CHECKS_STREAM, patient)
    behind = await connect([proxy.url], name="worker", buffer_writes=False)

    async def is_on_its_way() -> bool:
        return bool((await connection.js.consumer_info(CHECKS_STREAM, CONSUMER)).num_ack_pending)

    async with pull_loop(behind) as first:
        await until(lambda: first.last_alive > float("-inf") and first._current is not None)
        await behind.client.flush()  # its requests are at the server
        proxy.black_hole()
        await send_until_stored(publisher, b"one")
        await eventually("it is sent to the first", is_on_its_way)
        stopping = asyncio.create_task(first.stop())
        await until(lambda: first._keeper is None or first._keeper.done(), what="the end of pulling")
        proxy.heal()
        await stopping
    async with reading(connection) as second:
        await until(lambda: second.bodies == [b"one"])
        assert second.deliveries == [2]
    await behind.close()


async def test_settled_messages_leave_the_hand(connection: NatsConnection, publisher: Publisher) -> None:
    await ensure_consumer(connection.js, "eu")
    settle: list[Callable[[Msg], Awaitable[None]]] = [Msg.ack, Msg.term, Msg.nak]
    for number in range(3):
        await send_until_stored(publisher, str(number).encode())
    async with pull_loop(connection, keep_alive=0.05) as loop:
        messages = loop.messages()
        for how in settle:
            await how(await anext(messages))
        last = await anext(messages)  # what was handed back with nak
        assert last.metadata.num_delivered == 2
        await last.ack()
        assert loop.in_hand == 0
        await until(lambda: not loop._keep_alive._held, what="the list of messages in hand to be empty")


@pytest.mark.parametrize("how", [Msg.ack, Msg.nak, Msg.term], ids=["ack", "nak", "term"])
async def test_an_answer_that_can_not_be_sent_leaves_its_message_to_redelivery(
    server: NatsServer, publisher: Publisher, how: Callable[[Msg], Awaitable[None]]
) -> None:
    """Said to be in progress for ever, it would keep the next check of its monitor out of the queue."""
    connection = await connect([server.url], name="worker", buffer_writes=False)
    await ensure_consumer(connection.js, "eu")
    async with pull_loop(connection, heartbeat=0.2) as loop:
        await send_until_stored(publisher, b"one")
        messages = loop.messages()
        message = await anext(messages)
        await server.kill()
        await until(lambda: not connection.is_connected, what="the loss of the connection")
        await loop.settle(message, how(message))
        await server.start()
        again = await asyncio.wait_for(anext(messages), 60)
        assert (again.data, again.metadata.sequence.stream) == (message.data, message.metadata.sequence.stream)
        await loop.settle(again, again.ack())
        assert loop.in_hand == 0
    await connection.close()


async def test_a_consumer_that_cannot_be_re_created_ends_the_loop_loudly(connection: NatsConnection) -> None:
    async def broken() -> None:
        raise OSError("no")

    async with PullLoop(connection, CHECKS_STREAM, "missing", ensure=broken, failure_budget=1.0) as loop:
        with pytest.raises(ConsumerLostError, match="given up after 1 s"):
            await asyncio.wait_for(anext(loop.messages()), 30)


@pytest.mark.parametrize(
    "silence",
    [ServiceUnavailableError(), NatsTimeoutError(), NoRespondersError()],
    ids=lambda error: type(error).__name__,
)
async def test_streams_without_a_leader_are_waited_for_beyond_the_budget_of_failures(
    connection: NatsConnection, publisher: Publisher, silence: NatsError
) -> None:
    """Nothing that a restart could mend, and a worker that ends loses the results that wait in it."""
    asked = []

    async def leaderless_for_a_while() -> None:
        asked.append(asyncio.get_running_loop().time())
        if asked[-1] - asked[0] < 2.0:
            raise silence
        await ensure_consumer(connection.js, "eu")

    ensure = leaderless_for_a_while
    async with PullLoop(connection, CHECKS_STREAM, CONSUMER, ensure=ensure, failure_budget=0.5) as loop:
        await send_until_stored(publisher, b"one")
        message = await asyncio.wait_for(anext(loop.messages()), 30)
        assert message.data == b"one"
        await message.ack()


async def test_an_outage_longer_than_its_budget_ends_the_loop_loudly(
    server: NatsServer, connection: NatsConnection
) -> None:
    await ensure_consumer(connection.js, "eu")
    async with pull_loop(connection, heartbeat=0.2, outage_budget=1.0) as loop:
        await server.kill()
        with pytest.raises(ConsumerLostError, match="cannot be reached"):
            await asyncio.wait_for(anext(loop.messages()), 30)


async def test_a_closed_connection_ends_the_loop_loudly(connection: NatsConnection) -> None:
    await ensure_consumer(connection.js, "eu")
    async with pull_loop(connection, heartbeat=0.2) as loop:
        await connection.close()
        with pytest.raises(ConsumerLostError, match="closed for good"):
            await asyncio.wait_for(anext(loop.messages()), 30)


async def test_stopping_leaves_no_task_behind(connection: NatsConnection) -> None:
    await ensure_consumer(connection.js, "eu")
    before = asyncio.all_tasks()
    async with reading(connection):
        pass
    await until(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")


async def recorder_loop(connection: NatsConnection) -> PullLoop:
    async def ensure() -> None:
        await ensure_recorder(connection.js)

    await ensure()
    return PullLoop(connection, RESULTS_STREAM, "recorder", ensure=ensure, batch=100)


async def test_batches_end_when_full_or_when_their_time_is_over(
    connection: NatsConnection, publisher: Publisher
) -> None:
    async with await recorder_loop(connection) as loop:
        for number in range(25):
            await publisher.send(f"results.eu.{number}", b"")
        await until(lambda: loop.in_hand == 25)
        sizes = []
        started = asyncio.get_running_loop().time()
        async for batch in loop.batches(10, 1.0):
            sizes.append(len(batch))
            for message in batch:
                await message.ack()
            if sum(sizes) == 25:
                break
        assert sizes == [10, 10, 5]
        assert 0.99 <= asyncio.get_running_loop().time() - started < 3.0, "only the last one waits"


async def test_batches_end_with_stop(connection: NatsConnection) -> None:
    async with await recorder_loop(connection) as loop:

        async def read() -> list[list[Msg]]:
            return [batch async for batch in loop.batches(10, 0.2)]

        reader = asyncio.create_task(read())
        await until(lambda: loop.silence < 1)
        await loop.stop()
        assert await asyncio.wait_for(reader, 10) == []
