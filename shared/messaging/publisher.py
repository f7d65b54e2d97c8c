"""Pipelined publishing to JetStream whose futures always resolve: with an answer, or at a deadline.

The client's own ``publish_async`` never resolves on an error answer and loses a slot of its window each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import BadHeaderError, BadSubjectError, MaxPayloadError
from nats.errors import Error as NatsError

from shared.domain.clock import Clock, SystemClock
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import (
    ConnectionLostError,
    NobodyListensError,
    PublishError,
    PublishRejectedError,
    PublishUnknownError,
)

MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
_LOST: Final = "the connection was lost before an answer came"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """The stream has the message; ``duplicate`` says that it had it before under the same message id."""

    sequence: int
    duplicate: bool


class _ServerError(msgspec.Struct):
    code: int
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: _ServerError | None = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def acceptance() -> bytes:
    """The answer of a process that takes over what was published to it without a stream between."""
    return msgspec.json.encode(_Answer())


def refusal(reason: str) -> bytes:
    """The answer of such a process that can't: the publisher finds it as ``PublishRejectedError``."""
    return msgspec.json.encode(_Answer(error=_ServerError(503, description=reason)))


class Publisher:
    """Publishes up to ``window`` messages at once; each is settled within ``timeout`` seconds (plus a quarter).

    The counters ``stored``, ``duplicates``, ``rejected`` and ``unknown`` only grow and add up to all messages.
    """

    def __init__(
        self, connection: NatsConnection, *, window: int = 512, timeout: float = 2.0, clock: Clock | None = None
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._window = asyncio.Semaphore(window)
        # In order of sending, so that the oldest come first when deadlines are checked.
        self._waiting: dict[str, tuple[asyncio.Future[PublishReceipt], float]] = {}
        self._idle = asyncio.Event()
        self._count = 0
        self._prefix = ""
        self._subscription: Subscription | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None
        self.stored = 0
        self.duplicates = 0
        self.rejected = 0
        self.unknown = 0

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether ``publish`` would write at once; else it waits until an earlier message is settled."""
        return not self._window.locked()

    async def start(self) -> None:
        """Subscribe to the answers. Raises ``nats.errors.Error`` when the connection is closed."""
        self._prefix = f"{self._connection.client.new_inbox()}."
        self._subscription = await self._connection.client.subscribe(f"{self._prefix}*", cb=self._on_answer)
        self._stop_listening = self._connection.add_reconnect_listener(self._on_reconnected)
        self._sweeper = asyncio.create_task(self._sweep(), name="publisher deadlines")

    async def stop(self) -> None:
        """Wait until every message in flight is settled, which the deadline bounds, then let go. Idempotent."""
        if self._sweeper is None:
            return
        while self._waiting and not self._sweeper.done():
            self._idle.clear()
            await self._idle.wait()
        self._sweeper.cancel()
        self._sweeper = None
        if self._stop_listening:
            self._stop_listening()
        if self._subscription is not None and not self._connection.is_closed:
            await self._subscription.unsubscribe()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self, subject: str, payload: bytes, *, message_id: str | None = None, headers: dict[str, str] | None = None
    ) -> PublishReceipt:
        """Publish and wait for the answer. Raises ``PublishRejectedError`` or ``PublishUnknownError``."""
        return await (await self.publish(subject, payload, message_id=message_id, headers=headers))

    async def publish(
        self, subject: str, payload: bytes, *, message_id: str | None = None, headers: dict[str, str] | None = None
    ) -> asyncio.Future[PublishReceipt]:
        """Send now, waiting only for room in the window; the future holds the receipt or the error of ``send``.

        Whatever fails is in the future, also what fails at once: nothing but cancellation is raised here.
        """
        if message_id is not None:
            headers = {**headers, MESSAGE_ID_HEADER: message_id} if headers else {MESSAGE_ID_HEADER: message_id}
        await self._window.acquire()
        self._count += 1
        token = f"{self._count:x}"
        future: asyncio.Future[PublishReceipt] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (future, self._clock.monotonic() + self._timeout)
        try:
            await self._connection.client.publish(subject, payload, reply=self._prefix + token, headers=headers)
        except NatsError as error:
            self._settle(token, _not_sent(error))
        except BaseException:
            self._settle(token, PublishUnknownError("cancelled while sending"))
            future.exception()  # its caller is being cancelled and will not look
            raise
        return future

    async def _on_answer(self, message: Msg) -> None:
        token = message.subject[len(self._prefix) :]
        if message.headers and message.headers.get("Status") == "503":
            self._settle(token, NobodyListensError("nothing listens on the subject"))
            return
        try:
            answer = _ANSWER.decode(message.data)
        except msgspec.DecodeError as error:
            self._settle(token, PublishUnknownError(f"unreadable answer: {error}"))
            return
        if answer.error is None:
            self._settle(token, PublishReceipt(answer.seq, answer.duplicate))
        else:
            fault = answer.error
            self._settle(token, PublishRejectedError(fault.code, fault.err_code, fault.description))

    def _on_reconnected(self) -> None:
        """What was on its way when the connection broke gets no answer: its deadline would only cost seconds."""
        for token, (_, deadline) in list(self._waiting.items()):
            if deadline - self._timeout <= self._connection.lost_at:
                self._settle(token, ConnectionLostError(_LOST))

    def _settle(self, token: str, outcome: PublishReceipt | PublishError) -> None:
        """Resolve one message and give its place in the window back, exactly once."""
        entry = self._waiting.pop(token, None)
        if entry is None:
            return
        self._window.release()
        if not self._waiting:
            self._idle.set()
        self._count_outcome(outcome)
        future = entry[0]
        if future.done():  # its caller was cancelled
            return
        if isinstance(outcome, PublishReceipt):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def _count_outcome(self, outcome: PublishReceipt | PublishError) -> None:
        if isinstance(outcome, PublishReceipt):
            self.duplicates += outcome.duplicate
            self.stored += not outcome.duplicate
        elif isinstance(outcome, PublishRejectedError):
            self.rejected += 1
        else:
            self.unknown += 1

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._timeout / 4)
            now = self._clock.monotonic()
            for token, (_, deadline) in list(self._waiting.items()):
                if deadline > now:
                    break
                self._settle(token, self._silence(deadline))

    def _silence(self, deadline: float) -> PublishUnknownError:
        is_lost = not self._connection.is_connected or deadline - self._timeout <= self._connection.lost_at
        return (
            ConnectionLostError(_LOST) if is_lost else PublishUnknownError(f"no answer within {self._timeout:g} s")
        )


def _not_sent(error: NatsError) -> PublishError:
    if isinstance(error, MaxPayloadError | BadSubjectError | BadHeaderError):
        return PublishRejectedError(400, 0, describe(error))
    return ConnectionLostError(describe(error))
