"""Faults of NATS, of the network to it, and of what it keeps for us."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from shared.contracts.names import (
    CHECKS_STREAM,
    LEADER_BUCKET,
    PROGRESS_BUCKET,
    RECORDER_CONSUMER,
    RESULTS_STREAM,
    SCHEDULES_BUCKET,
    worker_consumer,
)
from shared.contracts.wire import ResultBatch
from shared.messaging.connect import connect
from shared.messaging.declarations import bucket_stream
from shared.testing.tocsin import eventually
from tests.chaos.books import read_books
from tests.chaos.installation import Installation, clock
from tests.chaos.processes import Service

FREEZE_SECONDS = 30.0
PARTITION_SECONDS = 15.0
RESTORED_SECONDS = 30.0
ROLL_BACK_SECONDS = 10.0
FILL_SECONDS = 3.0
_COMMIT_SECONDS = 0.8


@asynccontextmanager
async def jetstream(chaos: Installation) -> AsyncIterator[JetStreamContext]:
    """A connection of an operator, past all proxies."""
    connection = await connect([server.url for server in chaos.nats_servers], name="chaos", buffer_writes=False)
    try:
        yield connection.js
    finally:
        await connection.close()


async def kill(chaos: Installation) -> int:
    await chaos.nats.kill()
    await chaos.nats.start()
    return clock.now_ms()


async def restart(chaos: Installation) -> int:
    await chaos.nats.restart()
    return clock.now_ms()


async def freeze(chaos: Installation) -> int:
    chaos.nats.freeze()
    await asyncio.sleep(FREEZE_SECONDS)
    chaos.nats.thaw()
    return clock.now_ms()


async def delete_checks_that_wait(chaos: Installation) -> int:
    """The stream goes while checks wait in it for a worker that is frozen."""
    async with _full_streams(chaos):
        return await delete_checks(chaos)


async def delete_results_that_wait(chaos: Installation) -> int:
    """Results wait for a PostgreSQL that is frozen; they are lost in the stream and with every recorder."""
    workers = chaos.workers
    async with _full_streams(chaos):
        await asyncio.gather(*(worker.kill() for worker in workers))
        await delete_results(chaos)
    await chaos.start(workers)
    return clock.now_ms()


@asynccontextmanager
async def _full_streams(chaos: Installation) -> AsyncIterator[None]:
    chaos.postgres.freeze()
    chaos.services["worker-3"].send(signal.SIGSTOP)
    await asyncio.sleep(FILL_SECONDS)
    try:
        yield
    finally:
        chaos.postgres.thaw()
        if chaos.services["worker-3"].is_running:
            chaos.services["worker-3"].send(signal.SIGCONT)


async def lose_everything(chaos: Installation) -> int:
    """What a memory stream does at a restart: all streams, buckets and consumers are gone."""
    async with _full_streams(chaos):
        await chaos.nats.kill()
        chaos.nats.wipe()
        await chaos.nats.start()
    return clock.now_ms()


async def cut_power(chaos: Installation) -> int:
    """The disk of NATS comes back as it was ten seconds ago: what was acknowledged since then never happened."""
    live, copy = chaos.nats.directory / "jetstream", chaos.folder / "store-before"
    chaos.nats.freeze()
    await asyncio.to_thread(shutil.copytree, live, copy)
    chaos.nats.thaw()
    await asyncio.sleep(ROLL_BACK_SECONDS)
    await chaos.nats.kill()
    chaos.nats.wipe()
    await asyncio.to_thread(copy.rename, live)
    await chaos.nats.start()
    return clock.now_ms()


def delete_stream(stream: str) -> Callable[[Installation], Awaitable[int]]:
    async def play(chaos: Installation) -> int:
        async with jetstream(chaos) as js:
            await js.delete_stream(stream)
        return clock.now_ms()

    return play


def delete_consumer(stream: str, consumer: str) -> Callable[[Installation], Awaitable[int]]:
    async def play(chaos: Installation) -> int:
        async with jetstream(chaos) as js:
            await js.delete_consumer(stream, consumer)
        return clock.now_ms()

    return play


delete_checks = delete_stream(CHECKS_STREAM)
delete_results = delete_stream(RESULTS_STREAM)
delete_lease = delete_stream(bucket_stream(LEADER_BUCKET))
delete_watermark = delete_stream(bucket_stream(PROGRESS_BUCKET))
delete_worker_consumer = delete_consumer(CHECKS_STREAM, worker_consumer("default"))
delete_recorder_consumer = delete_consumer(RESULTS_STREAM, RECORDER_CONSUMER)


async def delete_schedules(chaos: Installation) -> int:
    """Every schedule has to be back within 30 s."""
    deleted = clock.now_ms()
    async with jetstream(chaos) as js:
        await js.delete_stream(bucket_stream(SCHEDULES_BUCKET))

        async def restored() -> bool:
            streams = {info.config.name: info.state.messages for info in await js.streams_info()}
            return streams.get(bucket_stream(SCHEDULES_BUCKET), 0) >= len(chaos.paths)

        await eventually("all schedules are back", restored, within=RESTORED_SECONDS, every=0.5)
    return deleted


async def delete_one_after_the_other(chaos: Installation) -> int:
    """A consumer, a bucket and both streams, a second apart."""
    for play in (delete_worker_consumer, delete_schedules_only, delete_checks, delete_results):
        await play(chaos)
        await asyncio.sleep(1)
    return clock.now_ms()


delete_schedules_only = delete_stream(bucket_stream(SCHEDULES_BUCKET))


async def cut_leader(chaos: Installation) -> int:
    return await _cut(chaos, await chaos.leader())


async def black_hole_leader(chaos: Installation) -> int:
    return await _black_hole(chaos, await chaos.leader())


async def cut_worker(chaos: Installation) -> int:
    return await _cut(chaos, chaos.services["worker-1"])


async def black_hole_worker(chaos: Installation) -> int:
    return await _black_hole(chaos, chaos.services["worker-1"])


async def _cut(chaos: Installation, service: Service) -> int:
    begun = clock.now_ms()
    await chaos.proxies[service.name].cut()
    await asyncio.sleep(PARTITION_SECONDS)
    chaos.proxies[service.name].heal()
    return begun


async def _black_hole(chaos: Installation, service: Service) -> int:
    begun = clock.now_ms()
    chaos.proxies[service.name].black_hole()
    await asyncio.sleep(PARTITION_SECONDS)
    chaos.proxies[service.name].heal()
    return begun


async def kill_recorders_before_the_ack(chaos: Installation) -> int:
    """SIGKILL of all workers when results are committed and their acknowledgements have not left the machine."""
    workers = chaos.workers
    await eventually(
        "results are committed", lambda: _committed_without_ack(chaos), within=60, every=_COMMIT_SECONDS
    )
    killed = clock.now_ms()
    await asyncio.gather(*(worker.kill() for worker in workers))
    for worker in workers:
        await chaos.proxies[worker.name].cut()  # what has not left by now is lost with the process
        chaos.proxies[worker.name].heal()
    assert await _stored_and_still_queued(chaos), "a result is committed and its message waits to be acknowledged"
    await chaos.start(workers)
    return killed


async def _committed_without_ack(chaos: Installation) -> bool:
    """Hold all that workers send back; whether results that they had in hand were committed then."""
    began = clock.now_ms()
    for worker in chaos.workers:
        chaos.proxies[worker.name].black_hole()
    before = await read_books(chaos.database_url, began - 10_000, began)
    await asyncio.sleep(_COMMIT_SECONDS)
    after = await read_books(chaos.database_url, began - 10_000, began)
    if len(after.stored) > len(before.stored):
        return True
    for worker in chaos.workers:
        chaos.proxies[worker.name].heal()
    return False


async def _stored_and_still_queued(chaos: Installation) -> int:
    """How many results are in PostgreSQL and in the stream at once."""
    now = clock.now_ms()
    stored = {row.key for row in (await read_books(chaos.database_url, now - 30_000, now)).stored}
    queued = set()
    async with jetstream(chaos) as js:
        state = (await js.stream_info(RESULTS_STREAM)).state
        for sequence in range(state.first_seq, state.last_seq + 1):
            try:
                message = await js.get_msg(RESULTS_STREAM, sequence)
            except NotFoundError:
                continue  # settled before some that are older
            batch = msgspec.json.decode(message.data or b"", type=ResultBatch)
            queued |= {result.key for result in batch.results}
    return len(stored & queued)


async def kill_api_before_the_relay(chaos: Installation) -> int:
    """Monitors are created while the API can't reach NATS; then it is killed, and another one is started."""
    api = chaos.services["api"]
    await chaos.proxies["api"].cut()
    for number in range(5):
        await chaos.post_monitor(f"/m/unrelayed-{number}-{clock.now_ms()}", interval_seconds=3600)
    killed = clock.now_ms()
    await api.kill()
    chaos.proxies["api"].heal()
    await chaos.start([api])
    return killed
