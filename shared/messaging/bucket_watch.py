"""One pass over a KV bucket and the changes after it, through a consumer of our own.

The client's watcher marks the end of the initial data too early, and its ordered consumer comes back from a
re-created bucket as if nothing had happened. Here the end of the load is counted, a gap or a silence ends the
watch, and the consumer goes away with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.errors import MessagingError

HEARTBEAT_SECONDS: Final = 2.0
FORGET_AFTER_SECONDS: Final = 30.0
_QUIET_SECONDS: Final = 0.5
_UNLIMITED: Final = 0

_log = structlog.get_logger(__name__)


class WatchEndedError(MessagingError):
    """The watch cannot be trusted any more and has to be begun anew."""


class BucketWatch:
    """First every key's latest value, then every change, in order, each handed to ``take(key, value, revision)``.

    A value of None says that the key was deleted or has expired. ``take`` may be exchanged between two awaits.
    ``ended`` is set, with a reason, as soon as a change may have been missed.
    """

    def __init__(
        self, connection: NatsConnection, bucket: str, clock: Clock, take: Callable[[str, bytes | None, int], None]
    ) -> None:
        self._connection = connection
        self._stream = bucket_stream(bucket)
        self._filter = bucket_subject(bucket)
        self._prefix_length = len(bucket_subject(bucket, ""))
        self._clock = clock
        self.take = take
        self._name = f"mirror-{uuid4().hex}"
        self._subscription: Subscription | None = None
        self._seen = 0
        self._behind = 0
        self._progress = asyncio.Event()
        self._last_frame = clock.monotonic()
        self.ended: str | None = None

    async def load(self) -> None:
        """Return when, by the server's count, every key has been handed over; raises ``nats.errors.Error``."""
        client = self._connection.client
        inbox = client.new_inbox()
        # The bytes limit would drop messages of a large bucket; the server's flow control bounds them instead.
        self._subscription = await client.subscribe(inbox, cb=self._receive, pending_bytes_limit=_UNLIMITED)
        info = await self._connection.js.add_consumer(self._stream, self._consumer(inbox))
        await self._until_complete(_total(info))

    def check(self) -> None:
        """Raise ``WatchEndedError`` when a change was missed, or may be missed because the server is silent."""
        if self.ended is None and self._clock.monotonic() - self._last_frame > 2 * HEARTBEAT_SECONDS + 1:
            self.ended = "no sign of life"
        if self.ended is not None:
            raise WatchEndedError(self.ended)

    async def close(self) -> None:
        """Remove the consumer; without a connection the server forgets it after half a minute."""
        if self._connection.is_closed or self._subscription is None:
            return
        try:
            await self._subscription.unsubscribe()
            if self._connection.is_connected:
                await self._connection.js.delete_consumer(self._stream, self._name)
        except (NatsError, OSError) as error:
            _log.debug("consumer of a mirror not removed", consumer=self._name, error=describe(error))

    def _consumer(self, inbox: str) -> ConsumerConfig:
        return ConsumerConfig(
            name=self._name,
            deliver_subject=inbox,
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._filter,
            flow_control=True,
            idle_heartbeat=HEARTBEAT_SECONDS,
            inactive_threshold=FORGET_AFTER_SECONDS,
            mem_storage=True,
            num_replicas=1,
        )

    async def _until_complete(self, needed: int) -> None:
        # Both are needed: values that change during the load are delivered late, and count twice.
        while self._seen < needed or self._behind:
            self._progress.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._progress.wait()
            except TimeoutError:  # a key that vanished meanwhile is never delivered: the count is out of reach
                info = await self._connection.js.consumer_info(self._stream, self._name)
                if info.num_pending == 0 and _delivered(info) <= self._seen:
                    return
            self.check()
            if is_cancelled():
                raise asyncio.CancelledError

    async def _receive(self, message: Msg) -> None:
        self._last_frame = self._clock.monotonic()
        headers = message.headers or {}
        if "Status" in headers:
            await self._on_status(message, headers)
            return
        metadata = message.metadata
        self._seen += 1
        if metadata.sequence.consumer != self._seen:
            self.ended = self.ended or f"message {self._seen} was lost"
        self._behind = metadata.num_pending
        is_gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
        key = message.subject[self._prefix_length :]
        self.take(key, None if is_gone else message.data, metadata.sequence.stream)
        self._progress.set()

    async def _on_status(self, message: Msg, headers: dict[str, str]) -> None:
        if headers["Status"] != "100":
            self.ended = self.ended or f"{headers['Status']} {headers.get('Description', '')}"
            self._progress.set()
        elif answer := message.reply or headers.get("Nats-Consumer-Stalled"):
            await self._connection.client.publish(answer)  # flow control: what came before has been handed over
        elif (last := headers.get("Nats-Last-Consumer")) and int(last) > self._seen:
            self.ended = self.ended or f"messages up to {last} were sent, {self._seen} came"


def _delivered(info: ConsumerInfo) -> int:
    return info.delivered.consumer_seq if info.delivered is not None else 0


def _total(info: ConsumerInfo) -> int:
    return _delivered(info) + (info.num_pending or 0)
