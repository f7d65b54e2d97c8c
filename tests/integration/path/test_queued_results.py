"""Results reach the queue in batches, and whoever made one learns when it is safe there."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec

from monitoring_worker.results import BATCH, LINGER_SECONDS, QueuedResults
from shared.contracts.names import RESULTS_STREAM
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.domain.clock import SystemClock
from shared.domain.result import CheckVerdict, ResultStatus
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.testing.nats import NatsServer

clock = SystemClock()


def result(slot_ms: int) -> ResultMessage:
    return ResultMessage(UUID(int=1), 1, "eu", slot_ms, slot_ms, CheckVerdict(ResultStatus.UP))


async def batches(connection: NatsConnection) -> list[ResultBatch]:
    last = (await connection.js.stream_info(RESULTS_STREAM)).state.last_seq
    messages = [await connection.js.get_msg(RESULTS_STREAM, sequence) for sequence in range(1, last + 1)]
    return [msgspec.json.decode(message.data or b"", type=ResultBatch) for message in messages]


async def test_results_of_a_moment_travel_together(connection: NatsConnection, publisher: Publisher) -> None:
    queued = QueuedResults(publisher, "eu")
    began = clock.monotonic()
    await asyncio.gather(*(queued.put(result(slot)) for slot in range(10)))
    assert clock.monotonic() - began >= LINGER_SECONDS
    [batch] = await batches(connection)
    assert [message.slot_ms for message in batch.results] == list(range(10))


async def test_a_full_batch_does_not_linger(connection: NatsConnection, publisher: Publisher) -> None:
    queued = QueuedResults(publisher, "eu")
    await asyncio.gather(*(queued.put(result(slot)) for slot in range(2 * BATCH + 1)))
    assert [len(batch.results) for batch in await batches(connection)] == [BATCH, BATCH, 1]


async def test_two_batches_that_begin_with_the_same_slot_are_both_kept(
    connection: NatsConnection, publisher: Publisher
) -> None:
    """A check that ran twice, in one worker or in two, must not cost the results that travel with it."""
    for other in (2, 3):
        queued = QueuedResults(publisher, "eu")
        await asyncio.gather(queued.put(result(1)), queued.put(result(other)))
    stored = [[message.slot_ms for message in batch.results] for batch in await batches(connection)]
    assert stored == [[1, 2], [1, 3]]


async def test_nothing_is_confirmed_or_lost_while_the_queue_is_away(
    nats: NatsServer, connection: NatsConnection, publisher: Publisher
) -> None:
    queued = QueuedResults(publisher, "eu")
    await nats.kill()
    waiting = [asyncio.create_task(queued.put(result(slot))) for slot in range(5)]
    done, _ = await asyncio.wait(waiting, timeout=3 * LINGER_SECONDS)
    assert not done
    await nats.start()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    stored = [message.slot_ms for batch in await batches(connection) for message in batch.results]
    assert sorted(set(stored)) == list(range(5))
