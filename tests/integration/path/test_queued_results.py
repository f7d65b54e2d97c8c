"""Results reach the queue in batches, and whoever made one learns when it is safe there."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from monitoring_worker.results import BATCH, LINGER_SECONDS, QueuedResults
from shared.contracts.names import RESULTS_STREAM
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.domain.clock import SystemClock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import CheckVerdict, Evidence, ResultStatus
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


@pytest.mark.parametrize(
    ("number", "size", "is_whole"),
    [(100, 16_000, True), (5, 400_000, True), (3, 2_000_000, False)],
    ids=["many", "large", "larger than any message"],
)
async def test_results_with_much_evidence_do_not_wait_for_a_queue_that_never_takes_them(
    connection: NatsConnection, publisher: Publisher, number: int, size: int, is_whole: bool
) -> None:
    queued = QueuedResults(publisher, "eu")
    evidence = Evidence(body="x" * size)
    error = CheckError(ErrorKind.KEYWORD_MISSING, "what the target sent is not what it should be")
    verdict = CheckVerdict(ResultStatus.DOWN, 2, error, evidence=evidence)
    results = [replace(result(slot), verdict=verdict) for slot in range(number)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(queued.put(each) for each in results))
    stored = [message for batch in await batches(connection) for message in batch.results]
    assert sorted(message.slot_ms for message in stored) == list(range(number))
    assert {(message.verdict.status, message.verdict.error) for message in stored} == {(ResultStatus.DOWN, error)}
    assert {message.verdict.evidence for message in stored} == {evidence if is_whole else None}
    assert publisher.rejected == 0


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
    waiting = [queued.put(result(slot)) for slot in range(5)]
    done, _ = await asyncio.wait(waiting, timeout=3 * LINGER_SECONDS)
    assert not done
    await nats.start()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    stored = [message.slot_ms for batch in await batches(connection) for message in batch.results]
    assert sorted(set(stored)) == list(range(5))
