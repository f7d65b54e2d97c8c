"""Tell the server that messages in hand are still being worked on, so that ``ack_wait`` can be short."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe

_log = structlog.get_logger(__name__)

HOLD_LIMIT_SECONDS: Final = 1200.0


class KeepAlive:
    """Sends "in progress" for every message in hand, once per ``every`` seconds; one task for all of them.

    A message leaves when it is settled (ack, nak or term), or after ``hold_limit`` seconds: a reader that forgets
    a message must not hold it, and with it its subject, for ever. The limit exceeds the longest check allowed
    (six attempts of 120 s with 60 s between them).
    """

    def __init__(
        self, connection: NatsConnection, clock: Clock, *, every: float, hold_limit: float = HOLD_LIMIT_SECONDS
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._every = every
        self._hold_limit = hold_limit
        self._held: list[tuple[Msg, float]] = []
        self._task: asyncio.Task[None] | None = None
        self.abandoned = 0

    @property
    def in_hand(self) -> int:
        """Messages received and not yet settled."""
        return sum(not message.is_acked for message, _ in self._held)

    def hold(self, message: Msg) -> None:
        self._held.append((message, self._clock.monotonic()))

    def let_go(self, message: Msg) -> None:
        """Leave a message that its reader does not settle to redelivery."""
        self._held = [entry for entry in self._held if entry[0] is not message]

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="keep messages in hand")

    async def stop(self) -> None:
        """Stop for good; what is still in hand is redelivered after ``ack_wait``. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._held.clear()

    async def _run(self) -> None:
        while not is_cancelled():
            await asyncio.sleep(self._every)
            self._forget_settled()
            # While disconnected they would only pile up in the write buffer.
            if self._connection.is_connected:
                await self._report()

    def _forget_settled(self) -> None:
        oldest = self._clock.monotonic() - self._hold_limit
        kept = []
        for message, since in self._held:
            if message.is_acked:
                continue
            if since > oldest:
                kept.append((message, since))
                continue
            self.abandoned += 1
            _log.error("message never settled, it is left to redelivery", subject=message.subject)
        self._held = kept

    async def _report(self) -> None:
        # What came just now has its whole ack_wait before it: it will be reported next time.
        recent = self._clock.monotonic() - self._every * 0.75
        for message, since in tuple(self._held):
            if message.is_acked or since > recent:
                continue
            try:
                await message.in_progress()
            except NatsError as error:
                _log.info("keeping messages in hand was interrupted", error=describe(error))
                return
