"""Tasks in a worker process: taskiq's receiver over our broker, with retries and dead letters around each task."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from taskiq import AckableMessage
from taskiq.acks import AcknowledgeType
from taskiq.receiver import Receiver

from shared.contracts.names import TASKS_CONSUMER, TASKS_STREAM
from shared.domain.clock import Clock
from shared.messaging.broker import ResilientPullBroker
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams, ensure_task_consumer
from shared.messaging.task_format import DecodedTask
from shared.observability import metrics
from shared.tasks.declaration import Task, TaskSet
from shared.tasks.execution import Delivery, TaskRunner
from shared.tasks.journal import Journals
from shared.tasks.letter_box import LetterBox

PREFETCH: Final = 64
DEFAULT_CONCURRENCY: Final = 100
UNKNOWN_PATIENCE_SECONDS: Final = 3600.0
"""So long a task with a name that no worker knows is kept in the queue: a rolling update may take a while."""

Resources = TypeVar("Resources")
_content: ContextVar[DecodedTask] = ContextVar("content")


class MessageReceiver(Receiver):
    """Lets a task see the message it came in: taskiq itself passes on its argument only."""

    async def callback(self, message: bytes | AckableMessage, raise_err: bool = False) -> None:
        assert isinstance(message, AckableMessage)
        assert isinstance(message.data, DecodedTask)
        _content.set(message.data)  # each callback runs in a context of its own
        await super().callback(message, raise_err)


def content_in_hand() -> DecodedTask:
    """What the running task came in; only inside a task that a ``MessageReceiver`` runs."""
    return _content.get()


class TaskWorker:
    """Runs the tasks of the sets it is given, at most ``concurrency`` at a time."""

    def __init__(
        self,
        connection: NatsConnection,
        publisher: Publisher,
        clock: Clock,
        *,
        replicas: int = 1,
        concurrency: int = DEFAULT_CONCURRENCY,
        stop_grace: float = 25.0,
    ) -> None:
        self._connection, self._replicas = connection, replicas
        self._concurrency, self._stop_grace = concurrency, stop_grace
        letters = LetterBox(publisher)
        self._broker = ResilientPullBroker(
            connection,
            publisher,
            TASKS_STREAM,
            TASKS_CONSUMER,
            ensure=self._ensure,
            batch=min(PREFETCH, concurrency),
            clock=clock,
            on_reinitialised=metrics.consumer_reinitialisations.inc,
            dead_letters=letters.put_message,
            unknown_patience=UNKNOWN_PATIENCE_SECONDS,
        )
        self._runner = TaskRunner(Journals(connection, publisher), letters, clock, self._broker.pull.let_go)

    @property
    def silence(self) -> float:
        """Seconds without a sign of life from the queue, for probes."""
        return self._broker.pull.silence

    def add(self, tasks: TaskSet[Resources], resources: Resources) -> None:
        """Take on a set of tasks; to be called before ``listen``."""
        for task in tasks:
            self._register(task, resources)

    async def listen(self, stopping: asyncio.Event) -> None:
        """Work until ``stopping`` is set and what runs is done, or its grace is over. Raises ``MessagingError``."""
        await self._ensure()
        receiver = MessageReceiver(
            self._broker,
            max_async_tasks=self._concurrency,
            validate_params=False,
            ack_type=AcknowledgeType.MANUAL,
            wait_tasks_timeout=self._stop_grace,
        )
        await receiver.listen(stopping)

    async def close(self) -> None:
        """Let go of what is in hand; the connection stays open."""
        await self._broker.shutdown()

    def _register(self, task: Task[Any, Any], resources: Any) -> None:
        async def execute(argument: Any) -> None:
            content = content_in_hand()
            await self._runner.deliver(Delivery(task, resources, content.message, content.task.task_id, argument))

        self._broker.register_task(execute, task_name=task.name)

    async def _ensure(self) -> None:
        await ensure_streams(self._connection.js, self._replicas)
        await ensure_task_consumer(self._connection.js)
