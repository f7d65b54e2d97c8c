"""Somebody hears of every dead letter: the log, a metric, and whoever raises the alarm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.contracts.names import DEAD_LETTERS_CONSUMER, DEAD_LETTERS_STREAM
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_dead_letter_consumer, ensure_streams
from shared.observability import metrics
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import DeadLetter, decode_letter

COUNT_EVERY_SECONDS: Final = 15.0
TOLD_AGAIN_SECONDS: Final = 10.0
_PREFETCH: Final = 16

OnLetter = Callable[[DeadLetter], Awaitable[None]]
"""Told of each letter once it is written, again when it raised, and of a letter that came back from a replay."""

_log = structlog.get_logger(__name__)


class DeadLetterListener:
    """Listens for all processes that do: each letter is told to one of them, at least once."""

    def __init__(
        self,
        connection: NatsConnection,
        desk: DeadLetterDesk,
        *,
        on_letter: OnLetter | None = None,
        replicas: int = 1,
    ) -> None:
        self._connection, self._desk = connection, desk
        self._on_letter, self._replicas = on_letter, replicas
        self._counted: set[str] = set()

    async def run(self) -> None:
        """Until cancelled. Raises ``ConsumerLostError``, ``StreamMismatchError``."""
        await self._ensure()
        pull = PullLoop(
            self._connection, DEAD_LETTERS_STREAM, DEAD_LETTERS_CONSUMER, ensure=self._ensure, batch=_PREFETCH
        )
        async with pull, asyncio.TaskGroup() as group:
            group.create_task(self._keep_count(), name="count of dead letters")
            async for message in pull.messages():
                await self._hear(pull, message)

    async def _hear(self, pull: PullLoop, message: Msg) -> None:
        try:
            letter = decode_letter(message.data)
            _log.error(
                "work failed for good and waits among the dead letters",
                letter=str(letter.id),
                task=letter.task,
                organisation=letter.organisation_id and str(letter.organisation_id),
                error=letter.error.kind,
                attempts=len(letter.attempts),
            )
            if self._on_letter:
                await self._on_letter(letter)
            await pull.settle(message, message.ack())
        except msgspec.DecodeError as error:
            _log.error("dead letter cannot be read by this release", subject=message.subject, error=str(error))
            await pull.settle(message, message.ack())
        except Exception as error:  # noqa: BLE001 whatever keeps the alarm from being raised, it is raised later
            _log.error("nobody could be told of a dead letter yet", subject=message.subject, error=describe(error))
            await pull.settle(message, message.nak(delay=TOLD_AGAIN_SECONDS))

    async def _keep_count(self) -> None:
        while not is_cancelled():
            try:
                await self.count()
            except (MessagingError, NatsError, OSError) as error:
                _log.warning("dead letters could not be counted", error=describe(error))
            await asyncio.sleep(COUNT_EVERY_SECONDS)

    async def count(self) -> None:
        """Bring the metric up to date."""
        found = await self._desk.count()
        for task in self._counted | found.keys():
            metrics.dead_letters.labels(task).set(found[task])
        self._counted |= found.keys()

    async def _ensure(self) -> None:
        await ensure_streams(self._connection.js, self._replicas)
        await ensure_dead_letter_consumer(self._connection.js)
