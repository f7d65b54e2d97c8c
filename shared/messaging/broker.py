"""taskiq on top of our pull loop: a worker that never goes deaf and never eats a task it does not understand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Final

import structlog
from nats.aio.msg import Msg
from taskiq import AckableMessage, AsyncBroker, BrokerMessage
from taskiq.message import TaskiqMessage
from taskiq_nats import PullBasedJetStreamBroker

from shared.domain.clock import Clock, SystemClock
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.task_format import DecodedTask, TaskFormatter

SUBJECT_LABEL: Final = "tocsin_subject"
UNKNOWN_TASK_DELAY_SECONDS: Final = 5.0
UNKNOWN_TASK_DELIVERIES: Final = 8
UNKNOWN_CHECK_SECONDS: Final = 45.0
"""A check with a name that nobody knows is given up at this age: its slot is too old to be run anyway."""

REFUSED_AGAIN_SECONDS: Final = 60.0

DeadLetters = Callable[[Msg, str, str], Awaitable[None]]
"""Keeps a message that nobody can work on, with a kind (``undecodable``, ``unknown_task``) and a reason.

Returns when it is stored; raises ``PublishError``."""

_log = structlog.get_logger(__name__)


class ResilientPullBroker(PullBasedJetStreamBroker):
    """A taskiq broker over an existing connection; whoever owns the connection and the publisher closes them.

    A task name that is not known here is offered again: during a rolling update another worker knows it. After
    ``unknown_patience`` seconds, and at once for what cannot be decoded, the message goes to ``dead_letters``;
    without that it is offered again for ever. Nothing is dropped. Both are counted in ``unknown_tasks`` and
    ``undecodable`` and logged as errors. ``pull`` shows how the consumer is doing.
    """

    def __init__(
        self,
        connection: NatsConnection,
        publisher: Publisher,
        stream: str,
        consumer: str,
        *,
        ensure: Callable[[], Awaitable[None]],
        batch: int = 64,
        clock: Clock | None = None,
        on_reinitialised: Callable[[], None] | None = None,
        dead_letters: DeadLetters | None = None,
        unknown_patience: float = UNKNOWN_CHECK_SECONDS,
    ) -> None:
        super().__init__(servers=[], stream_name=stream, durable=consumer)
        self.client = connection.client  # type: ignore[misc]  # the base would open a connection of its own
        self.js = connection.js
        self.formatter = TaskFormatter()
        self._clock = clock or SystemClock()
        self.pull = PullLoop(
            connection,
            stream,
            consumer,
            ensure=ensure,
            batch=batch,
            clock=self._clock,
            on_reinitialised=on_reinitialised,
        )
        self.unknown_tasks = 0
        self.undecodable = 0
        self._publisher = publisher
        self._dead_letters, self._unknown_patience = dead_letters, unknown_patience

    async def startup(self) -> None:
        """Run the start-up handlers; the connection, the stream and the consumer are there already."""
        await AsyncBroker.startup(self)

    async def shutdown(self) -> None:
        """Let go of messages in hand and run the shutdown handlers. The connection stays open."""
        await self.pull.close()
        await AsyncBroker.shutdown(self)

    async def kick(self, message: BrokerMessage) -> None:
        """Publish to the subject in the label ``tocsin_subject``, once per task id.

        Raises ``MessagingError`` without that label, and what ``Publisher.send`` raises.
        """
        subject = message.labels.get(SUBJECT_LABEL)
        if not isinstance(subject, str):
            raise MessagingError(f"task {message.task_name} has no label {SUBJECT_LABEL}: it says where to publish")
        await self._publisher.send(subject, message.message, message_id=message.task_id)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks that this worker knows. Raises ``ConsumerLostError``.

        Messages in hand are kept after the iteration ends, until ``shutdown``: running tasks may finish.
        """
        await self.pull.start()
        try:
            async for message in self.pull.messages():
                if task := await self._accepted(message):
                    yield AckableMessage(
                        data=DecodedTask.of(message, task), ack=partial(self._acknowledge, message)
                    )
        finally:
            await self.pull.stop()

    async def _acknowledge(self, message: Msg) -> None:
        await self.pull.settle(message, message.ack())

    async def _accepted(self, message: Msg) -> TaskiqMessage | None:
        """The task in a message, if this worker can run it."""
        try:
            task = self._decode(message)
        except (ValueError, TypeError) as error:
            await self._refuse_undecodable(message, error)
            return None
        if self.find_task(task.task_name) is None:
            await self._refuse_unknown(message, task.task_name)
            return None
        return task

    def _decode(self, message: Msg) -> TaskiqMessage:
        task = self.formatter.loads(message.data)
        task.parse_labels()  # taskiq acknowledges and drops what fails here, so it has to fail before
        return task

    async def _refuse_undecodable(self, message: Msg, error: Exception) -> None:
        self.undecodable += 1
        _log.error("message is not a task", subject=message.subject, error=describe(error))
        await self._bury(message, "undecodable", str(error))

    async def _refuse_unknown(self, message: Msg, name: str) -> None:
        self.unknown_tasks += 1
        metadata = message.metadata
        age = self._clock.now_ms() / 1000 - metadata.timestamp.timestamp()
        _log.error("task is unknown here", task=name, deliveries=metadata.num_delivered, age=round(age))
        if metadata.num_delivered >= UNKNOWN_TASK_DELIVERIES and age >= self._unknown_patience:
            await self._bury(message, "unknown_task", f"no worker knows a task named {name[:100]}")
        else:
            await self.pull.settle(message, message.nak(delay=UNKNOWN_TASK_DELAY_SECONDS))

    async def _bury(self, message: Msg, kind: str, reason: str) -> None:
        if self._dead_letters is None:
            await self.pull.settle(message, message.nak(delay=REFUSED_AGAIN_SECONDS))
            return
        try:
            await self._dead_letters(message, kind, reason)
        except MessagingError as error:
            _log.warning("message could not be kept as a dead letter yet", error=describe(error))
            await self.pull.settle(message, message.nak(delay=UNKNOWN_TASK_DELAY_SECONDS))
        else:
            await self.pull.settle(message, message.term())
