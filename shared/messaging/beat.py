"""A beat that comes from the server itself and not from our processes: a scheduled message every five seconds."""

from __future__ import annotations

from typing import Final

from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from shared.contracts.names import BEAT_SCHEDULE_SUBJECT, BEAT_SUBJECT, BEATS_STREAM
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import DUPLICATE_WINDOW_SECONDS
from shared.messaging.streams import ensure_stream

EVERY: Final = "@every 5s"


def beats_stream(replicas: int = 1) -> StreamConfig:
    """The stream that makes the beat. Streams with schedules have to discard old messages."""
    return StreamConfig(
        name=BEATS_STREAM,
        subjects=["beats.>"],
        storage=StorageType.FILE,
        num_replicas=replicas,
        max_msgs_per_subject=1,
        discard=DiscardPolicy.OLD,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        allow_rollup_hdrs=True,  # the server turns it on for a stream with schedules
        allow_msg_schedules=True,
        allow_msg_ttl=True,
    )


async def ensure_beat(connection: NatsConnection, replicas: int = 1) -> None:
    """Declare the stream and (again) the schedule; the first beat comes within five seconds.

    Raises ``StreamMismatchError`` and ``nats.errors.Error``.
    """
    await ensure_stream(connection.js, beats_stream(replicas))
    await connection.js.publish(
        BEAT_SCHEDULE_SUBJECT,
        b"",
        headers={"Nats-Schedule": EVERY, "Nats-Schedule-Target": BEAT_SUBJECT, "Nats-Schedule-TTL": "5m"},
    )
