"""Request and reply over core NATS, for what a person waits for: it does not queue behind the schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError

Handler = Callable[[bytes], Awaitable[bytes]]

_QUEUE: Final = "workers"

_log = structlog.get_logger(__name__)


class NobodyAnswersError(MessagingError):
    """No process listens on the subject."""


class AnswerLateError(MessagingError):
    """A process listens, and no answer came in time."""


async def ask(connection: NatsConnection, subject: str, payload: bytes, *, timeout: float) -> bytes:
    """Ask one of those who serve ``subject``; raises ``NobodyAnswersError``, ``AnswerLateError``."""
    try:
        answer = await connection.client.request(subject, payload, timeout=timeout)
    except NoRespondersError as error:
        raise NobodyAnswersError(f"nobody serves {subject}") from error
    except (NatsTimeoutError, TimeoutError) as error:
        raise AnswerLateError(f"no answer on {subject} within {timeout:g} s") from error
    except NatsError as error:
        raise AnswerLateError(f"{subject}: {describe(error)}") from error
    return bytes(answer.data)


class RequestServer:
    """Serves a subject, shared with all processes that do; at most ``limit`` requests run at a time here.

    A request over the limit waits; its caller has a deadline of its own.
    """

    def __init__(self, connection: NatsConnection, subject: str, handler: Handler, *, limit: int = 50) -> None:
        self._connection, self._subject, self._handler = connection, subject, handler
        self._gate = asyncio.Semaphore(limit)
        self._running: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        self._subscription = await self._connection.client.subscribe(self._subject, queue=_QUEUE, cb=self._received)

    async def stop(self) -> None:
        """Take no new requests and finish those that run."""
        if self._subscription and not self._connection.is_closed:
            await self._subscription.unsubscribe()
        if self._running:
            await asyncio.wait(self._running)

    async def _received(self, message: Msg) -> None:
        task = asyncio.create_task(self._serve(message))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error(
                "a request was not answered, through a fault of our own", subject=self._subject, exc_info=error
            )

    async def _serve(self, message: Msg) -> None:
        async with self._gate:
            try:
                await message.respond(await self._handler(message.data))
            except NatsError as error:
                _log.warning("an answer could not be sent", subject=self._subject, error=describe(error))
            except ValueError as error:
                _log.error("an unreadable request was dropped", subject=self._subject, error=str(error))
