"""taskiq on top of our pull loop: a worker that never goes deaf and never eats a task it does not understand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from taskiq import AckableMessage, AsyncBroker, BrokerMessage
from taskiq.message import TaskiqMessage
from taskiq_nats import PullBasedJetStreamBroker

from shared.domain.clock import Clock
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.task_format import TaskFormatter

SUBJECT_LABEL: Final = "tocsin_subject"
UNKNOWN_TASK_DELAY_SECONDS: Final = 5.0
UNKNOWN_TASK_DELIVERIES: Final = 10

_log = structlog.get_logger(__name__)


class ResilientPullBroker(PullBasedJetStreamBroker):
    """A taskiq broker over an existing connection; whoever owns the connection and the publisher closes them.

    A task name that is not known here is offered again (during a rolling update another worker knows it), at
    most ten times; what cannot be decoded is removed. Both are counted in ``unknown_tasks`` and ``undecodable``
    and logged as errors. ``pull`` shows how the consumer is doing.
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
    ) -> None:
        super().__init__(servers=[], stream_name=stream, durable=consumer)
        self.client = connection.client  # type: ignore[misc]  # the base would open a connection of its own
        self.js = connection.js
        self.formatter = TaskFormatter()
        self.pull = PullLoop(
            connection, stream, consumer, ensure=ensure, batch=batch, clock=clock, on_reinitialised=on_reinitialised
        )
        self.unknown_tasks = 0
        self.undecodable = 0
        self._publisher = publisher
        self._unsettled: WeakValueDictionary[str, Msg] = WeakValueDictionary()

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
                if await self._is_ours(message):
                    yield AckableMessage(data=message.data, ack=message.ack)
        finally:
            await self.pull.stop()

    async def give_back(self, task_id: str, delay: float = 1.0) -> None:
        """Have a task that could not do its work and is not settled delivered again after ``delay`` seconds."""
        message = self._unsettled.get(task_id)
        if message is not None and not message.is_acked:
            await message.nak(delay=delay)

    async def _is_ours(self, message: Msg) -> bool:
        try:
            task = self._decode(message)
        except (ValueError, TypeError) as error:
            await self._refuse_undecodable(message, error)
            return False
        if self.find_task(task.task_name) is None:
            await self._refuse_unknown(message, task.task_name)
            return False
        self._unsettled[task.task_id] = message
        return True

    def _decode(self, message: Msg) -> TaskiqMessage:
        task = self.formatter.loads(message.data)
        task.parse_labels()  # taskiq acknowledges and drops what fails here, so it has to fail before
        return task

    async def _refuse_undecodable(self, message: Msg, error: Exception) -> None:
        self.undecodable += 1
        _log.error("message is not a task, removed", subject=message.subject, error=describe(error))
        await _settle(message.term())

    async def _refuse_unknown(self, message: Msg, name: str) -> None:
        self.unknown_tasks += 1
        deliveries = message.metadata.num_delivered
        if deliveries >= UNKNOWN_TASK_DELIVERIES:
            _log.error("task is unknown to every worker, removed", task=name, deliveries=deliveries)
            await _settle(message.term())
        else:
            _log.error("task is unknown here, offered again", task=name, deliveries=deliveries)
            await _settle(message.nak(delay=UNKNOWN_TASK_DELAY_SECONDS))


async def _settle(settling: Awaitable[None]) -> None:
    try:
        await settling
    except NatsError as error:  # the message comes again and is judged again
        _log.warning("message could not be settled", error=describe(error))
