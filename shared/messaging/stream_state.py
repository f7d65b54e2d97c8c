"""What the server tells of a stream beyond what its client shows: the age of the oldest message, the time."""

from __future__ import annotations

from datetime import datetime

import msgspec

from shared.messaging.connect import REQUEST_TIMEOUT_SECONDS, NatsConnection
from shared.messaging.errors import MessagingError


class StreamMissingError(MessagingError):
    """The stream does not exist, or the server did not describe it."""


class StreamContent(msgspec.Struct):
    """``first_ts`` is when the oldest message was stored; it means nothing while there is none."""

    messages: int = 0
    first_ts: datetime | None = None
    last_seq: int = 0


class StreamState(msgspec.Struct):
    """``ts`` is the server's time; ``created`` changes when the stream is deleted and made anew."""

    created: datetime | None = None
    state: StreamContent | None = None
    ts: datetime | None = None


async def stream_state(connection: NatsConnection, stream: str) -> StreamState:
    """Raises ``StreamMissingError``, and ``nats.errors.Error`` when the server does not answer."""
    answer = await connection.client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=REQUEST_TIMEOUT_SECONDS)
    try:
        found = msgspec.json.decode(answer.data, type=StreamState)
    except msgspec.DecodeError as error:
        raise StreamMissingError(f"stream {stream}: unreadable description: {error}") from error
    if found.state is None:
        raise StreamMissingError(f"stream {stream} is missing")
    return found
