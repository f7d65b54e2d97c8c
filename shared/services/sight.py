"""What can be seen of the work from outside of the processes that do it. Reads only."""

from __future__ import annotations

from datetime import datetime

import msgspec
from nats.js.api import ConsumerInfo, RawStreamMsg
from nats.js.errors import NotFoundError

from shared.contracts import names
from shared.contracts.wire import Progress
from shared.db.repositories.watch import active_regions, monitors_in_sight
from shared.db.session import Database
from shared.domain.clock import Clock, to_milliseconds
from shared.domain.watchdog import Depth, Reader, Sight
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.stream_state import StreamContent, stream_state

_EMPTY = StreamContent()
_WATERMARK = bucket_subject(names.PROGRESS_BUCKET, names.WATERMARK_KEY)


async def look(database: Database, connection: NatsConnection, clock: Clock) -> Sight:
    """One look; raises what the servers raise, ``StreamMissingError`` where a stream is gone."""
    async with database.system() as session:
        active, blind = await monitors_in_sight(session)
        regions = await active_regions(session)
    return Sight(
        now_ms=clock.now_ms(),
        planned_until_ms=_planned_until(await _last(connection, bucket_stream(names.PROGRESS_BUCKET), _WATERMARK)),
        beat_ms=_stored_ms(await _last(connection, names.BEATS_STREAM, names.BEAT_SUBJECT)),
        streams={
            names.CHECKS_STREAM: await _depth(connection, names.CHECKS_STREAM),
            names.RESULTS_STREAM: await _depth(connection, names.RESULTS_STREAM),
            names.TASKS_STREAM: await _untaken_tasks(connection),
        },
        readers={region: await _reader(connection, region) for region in regions},
        active_monitors=active,
        blind_monitors=blind,
    )


async def _last(connection: NatsConnection, stream: str, subject: str) -> RawStreamMsg | None:
    try:
        return await connection.js.get_last_msg(stream, subject)
    except NotFoundError:
        return None


async def _depth(connection: NatsConnection, stream: str) -> Depth:
    state = (await stream_state(connection, stream)).state or _EMPTY
    return Depth(state.messages, _moment_ms(state.first_ts) if state.messages else None)


async def _untaken_tasks(connection: NatsConnection) -> Depth:
    """Tasks that nobody has taken yet. The stream also holds those that wait for their next attempt, for hours."""
    info = await _consumer(connection, names.TASKS_STREAM, names.TASKS_CONSUMER)
    if info is None:
        return await _depth(connection, names.TASKS_STREAM)
    if not info.num_pending:
        return Depth()
    taken = info.delivered.stream_seq if info.delivered else 0
    try:
        oldest = await connection.js.get_msg(
            names.TASKS_STREAM, seq=taken + 1, subject=names.TASKS_SUBJECTS, next=True
        )
    except NotFoundError:  # taken and settled meanwhile
        return Depth()
    return Depth(info.num_pending, _moment_ms(oldest.time))


async def _reader(connection: NatsConnection, region: str) -> Reader | None:
    info = await _consumer(connection, names.CHECKS_STREAM, names.worker_consumer(region))
    if info is None:
        return None
    delivered = info.delivered.consumer_seq if info.delivered else 0
    return Reader(info.num_pending or 0, delivered, info.num_redelivered or 0)


async def _consumer(connection: NatsConnection, stream: str, name: str) -> ConsumerInfo | None:
    try:
        info: ConsumerInfo = await connection.js.consumer_info(stream, name)
    except NotFoundError:
        return None
    return info


def _planned_until(message: RawStreamMsg | None) -> int | None:
    if message is None:
        return None
    try:
        return msgspec.json.decode(message.data or b"", type=Progress).planned_until_ms
    except msgspec.DecodeError:
        return None


def _stored_ms(message: RawStreamMsg | None) -> int | None:
    return _moment_ms(message.time) if message else None


def _moment_ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_milliseconds(moment)
