"""Pulling from a durable consumer without ever going deaf.

A pull request lives only in the server's memory. A restart, a lost connection or a deleted consumer takes it
away without a word, and a client that waits for its answer waits for ever. So every request asks for idle
heartbeats, and silence for longer than two of them means: the request is lost, begin a new *generation* with a
fresh inbox. Reconnects and error answers start one at once; the silence rule is what the guarantee rests on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from shared.domain.clock import Clock, SystemClock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import ConsumerLostError, MessagingError
from shared.messaging.generation import Generation, GenerationEndedError, PullSettings
from shared.messaging.keepalive import KeepAlive

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0
_NO_ANSWER: Final = (NoRespondersError, NatsTimeoutError, ServiceUnavailableError)

_log = structlog.get_logger(__name__)


class PullLoop:
    """The messages of one durable consumer; ``ensure`` re-creates its stream and consumer when they are gone.

    At most ``batch`` messages are requested or waiting here at a time. Every message must be settled by its
    reader with ``ack``, ``nak`` or ``term``; until then the server is told every ``keep_alive`` seconds that it
    is worked on, also after ``stop``, until ``close``.

    Without a sign of life for ``failure_budget`` seconds from a consumer whose server answers, or for
    ``outage_budget`` seconds while NATS is not reachable or its streams have no leader, ``ConsumerLostError``
    ends the iteration. ``reinitialisations`` counts the generations begun after a failure; ``on_reinitialised`` is
    called for each.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        consumer: str,
        *,
        ensure: Callable[[], Awaitable[None]],
        batch: int = 64,
        heartbeat: float = 2.0,
        expires: float = 30.0,
        keep_alive: float = 0.8,
        failure_budget: float = 60.0,
        outage_budget: float = 600.0,
        clock: Clock | None = None,
        on_reinitialised: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._settings = PullSettings(stream, consumer, batch, heartbeat, expires)
        self._ensure = ensure
        self._failure_budget = failure_budget
        self._outage_budget = outage_budget
        self._clock = clock or SystemClock()
        self._on_reinitialised = on_reinitialised
        self._keep_alive = KeepAlive(connection, self._clock, every=keep_alive)
        self._buffer: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._current: Generation | None = None
        self._previous: Generation | None = None
        # The budget that is being used up, and since when.
        self._failing: tuple[float, float] | None = None
        self._stopping = False
        self._keeper: asyncio.Task[None] | None = None
        self._forget_listener: Callable[[], None] | None = None
        self._last_alive = self._clock.monotonic()
        self.reinitialisations = 0

    @property
    def in_hand(self) -> int:
        """Messages received and not yet settled."""
        return self._keep_alive.in_hand

    @property
    def last_alive(self) -> float:
        """Monotonic time of the last sign of life from the consumer, heartbeats included."""
        if self._current is not None:
            self._last_alive = max(self._last_alive, self._current.last_alive)
        return self._last_alive

    @property
    def silence(self) -> float:
        """Seconds without a sign of life, for probes; 0 while the buffer is full and nothing is asked for."""
        is_full = self._current is not None and self._current.is_full
        return 0.0 if is_full else self._clock.monotonic() - self.last_alive

    async def start(self) -> None:
        """Begin to pull. Does nothing when it is already pulling."""
        if self._keeper is not None and not self._keeper.done():
            return
        self._stopping = False
        self._last_alive = self._clock.monotonic()
        self._forget_listener = self._connection.add_reconnect_listener(self._on_reconnected)
        self._keep_alive.start()
        self._keeper = asyncio.create_task(self._keep_pulling(), name=f"pull {self._settings.consumer}")
        self._keeper.add_done_callback(lambda _: self._arrived.set())

    async def stop(self) -> None:
        """Stop pulling and hand back what nobody took; iterations end without an error. Idempotent."""
        self._stopping = True
        self._arrived.set()
        if self._forget_listener is not None:
            self._forget_listener()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        # What is on its way is handed back as well: redelivery alone would cost it ``ack_wait``.
        await asyncio.gather(*(each.drain() for each in (self._previous, self._current) if each is not None))
        self._previous = self._current = None
        while self._buffer:
            message = self._buffer.popleft()
            await self.settle(message, message.nak())

    async def close(self) -> None:
        """Stop, and let go of messages in hand: those not settled by now are redelivered. Idempotent."""
        await self.stop()
        await self._keep_alive.stop()

    async def settle(self, message: Msg, answer: Awaitable[None]) -> None:
        """Give ``answer`` about ``message``, which is let go when that can't be sent: then it comes again."""
        try:
            await answer
        except NatsError as error:
            self.let_go(message)
            _log.info("an answer could not be sent, its message comes again", error=describe(error))

    def let_go(self, message: Msg) -> None:
        """Say no longer that a message is worked on: it is redelivered after ``ack_wait`` unless it is settled."""
        self._keep_alive.let_go(message)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def messages(self) -> AsyncIterator[Msg]:
        """Messages one by one until ``stop``. Raises ``ConsumerLostError``."""
        while (message := await self._next()) is not None:
            yield message

    async def batches(self, max_messages: int, max_wait: float) -> AsyncIterator[list[Msg]]:
        """Lists of 1 to ``max_messages``; a list waits at most ``max_wait`` seconds after its first message.

        Ends with ``stop``; raises ``ConsumerLostError``.
        """
        while (first := await self._next()) is not None:
            batch = [first]
            try:
                async with asyncio.timeout(max_wait):
                    while len(batch) < max_messages and (message := await self._next()) is not None:
                        batch.append(message)
            except (TimeoutError, ConsumerLostError):
                pass  # a loss is raised again by the next call, when these have been worked on
            yield batch

    async def _next(self) -> Msg | None:
        while not self._buffer:
            if self._stopping:
                return None
            if self._keeper is None or self._keeper.done():
                raise self._loss()
            self._arrived.clear()
            await self._arrived.wait()
        message = self._buffer.popleft()
        if self._current is not None:
            self._current.notice_taken()
        return message

    def _loss(self) -> BaseException:
        error = self._keeper.exception() if self._keeper is not None and not self._keeper.cancelled() else None
        return error or ConsumerLostError(f"{self._settings.consumer}: pulling is not running")

    async def _keep_pulling(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not is_cancelled():
            if not self._connection.is_connected:
                self._check_budget(self._outage_budget, "NATS cannot be reached")
                await self._wait_for_reconnect(1.0)
                continue
            generation = await self._begin_generation()
            try:
                await generation.run()
            except (GenerationEndedError, NatsError, OSError) as error:
                if generation.last_alive > float("-inf"):
                    pause, self._failing = _FIRST_PAUSE_SECONDS, None
                await self._recover(error, pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _begin_generation(self) -> Generation:
        # The previous inbox stays open meanwhile: what was on its way to it is taken on, not lost until ack_wait.
        if self._previous is not None:
            await self._previous.close()
        self._last_alive = self.last_alive
        self._previous = self._current
        self._current = Generation(
            self._connection, self._clock, self._settings, self._take, waiting=self._buffer.__len__
        )
        self._reconnected.clear()
        return self._current

    async def _recover(self, error: Exception, pause: float) -> None:
        """After a failed generation: mind the budget and re-create what is gone."""
        if not self._connection.is_connected:
            return
        reason = str(error).strip() or describe(error)
        self.reinitialisations += 1
        if self._on_reinitialised is not None:
            self._on_reinitialised()
        _log.warning("pulling begins anew", consumer=self._settings.consumer, reason=reason)
        if not self._reconnected.is_set():
            # Where streams have no leader a restart mends nothing, and costs the checks that are in hand.
            self._check_budget(self._failure_budget if await self._recreate() else self._outage_budget, reason)
        await self._wait_for_reconnect(pause)

    async def _recreate(self) -> bool:
        """Re-create the consumer if it is gone; False when nobody answers for the streams."""
        try:
            await self._ensure()
        except (MessagingError, NatsError, OSError) as error:
            _log.warning(
                "the consumer could not be re-created yet", consumer=self._settings.consumer, error=describe(error)
            )
            return not isinstance(error, _NO_ANSWER)
        return True

    def _check_budget(self, budget: float, problem: str) -> None:
        if self._connection.is_closed:
            problem, budget = "the connection to NATS is closed for good", 0.0
        now = self._clock.monotonic()
        if self._failing is None or self._failing[0] != budget:
            self._failing = budget, now
        if now - self._failing[1] >= budget:
            raise ConsumerLostError(f"{self._settings.consumer}: given up after {budget:g} s: {problem}")

    async def _wait_for_reconnect(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._reconnected.wait()
        except TimeoutError:
            pass

    def _on_reconnected(self) -> None:
        self._failing = None
        self._reconnected.set()
        if self._current is not None:
            self._current.end("reconnected")

    def _take(self, message: Msg) -> None:
        self._keep_alive.hold(message)
        self._buffer.append(message)
        self._arrived.set()
