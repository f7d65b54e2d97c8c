"""One inbox and the pull requests that fill it, from their beginning to the moment they are of no use any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe

DRAIN_SECONDS: Final = 1.0
_NANOSECONDS: Final = 1_000_000_000

_log = structlog.get_logger(__name__)


class GenerationEndedError(Exception):
    """The requests of a generation are void."""


@dataclass(frozen=True, slots=True)
class PullSettings:
    """Times in seconds. At most ``batch`` messages are asked for or waiting here at a time."""

    stream: str
    consumer: str
    batch: int
    heartbeat: float
    expires: float

    @property
    def silence_limit(self) -> float:
        """Two heartbeats may be late or lost; after that the request is."""
        return 2 * self.heartbeat + 1

    @property
    def subject(self) -> str:
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"


class Generation:
    """Pulls into ``take`` through a fresh inbox; ``waiting`` tells how many messages nobody has taken on yet."""

    def __init__(
        self,
        connection: NatsConnection,
        clock: Clock,
        settings: PullSettings,
        take: Callable[[Msg], None],
        waiting: Callable[[], int],
    ) -> None:
        self._client = connection.client
        self._clock = clock
        self._settings = settings
        self._take = take
        self._waiting = waiting
        self._inbox = self._client.new_inbox()
        self._subscription: Subscription | None = None
        self._outstanding = 0
        self._attention = asyncio.Event()
        self._ended: GenerationEndedError | None = None
        self.last_alive = float("-inf")

    @property
    def is_full(self) -> bool:
        """Nothing is asked of the server, because what it sent is still waiting here."""
        return self._outstanding <= 0 and self._waiting() > 0

    async def run(self) -> None:
        """Keep requests open; raises ``GenerationEndedError`` in the end, or ``nats.errors.Error`` before."""
        self._subscription = await self._client.subscribe(self._inbox, cb=self._receive)
        expected_from = self._clock.monotonic()
        while self._ended is None and not is_cancelled():
            self._attention.clear()
            if self._is_running_low:
                await self._request()
            if self.is_full:  # no request is open, so no heartbeat can come
                expected_from = self._clock.monotonic()
            silent_for = self._clock.monotonic() - max(self.last_alive, expected_from)
            if silent_for >= self._settings.silence_limit:
                raise GenerationEndedError(f"no sign of life for {silent_for:.1f} s")
            await self._wait(self._settings.silence_limit - silent_for)
        raise self._ended or GenerationEndedError("stopped")

    def end(self, reason: str) -> None:
        """Make ``run`` raise soon; the first reason counts."""
        self._ended = self._ended or GenerationEndedError(reason)
        self._attention.set()

    def notice_taken(self) -> None:
        """A waiting message was taken on: ask for more in time."""
        if self._is_running_low:
            self._attention.set()

    async def drain(self) -> None:
        """Give the inbox up when all that the server sent to it is here. Who can't be asked sends it again."""
        if self._subscription is None or not self._client.is_connected:
            await self.close()
            return
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._subscription.drain()  # type: ignore[no-untyped-call]  # it is half typed
        except (NatsError, TimeoutError) as error:
            _log.info(
                "what is on its way comes again later", consumer=self._settings.consumer, error=describe(error)
            )

    async def close(self) -> None:
        """Give the inbox up. What is on its way to it comes again after ``ack_wait``."""
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()

    @property
    def _is_running_low(self) -> bool:
        return self._outstanding + self._waiting() <= self._settings.batch // 2

    async def _request(self) -> None:
        missing = self._settings.batch - self._outstanding - self._waiting()
        request = {
            "batch": missing,
            "expires": int(self._settings.expires * _NANOSECONDS),
            "idle_heartbeat": int(self._settings.heartbeat * _NANOSECONDS),
        }
        await self._client.publish(self._settings.subject, msgspec.json.encode(request), reply=self._inbox)
        self._outstanding += missing

    async def _wait(self, seconds: float) -> None:
        if is_cancelled():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._attention.wait()
        except TimeoutError:
            pass

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is not None:
            self._on_status(status, message.headers or {})
            return
        self.last_alive = self._clock.monotonic()
        self._outstanding -= 1
        self._take(message)

    def _on_status(self, status: str, headers: dict[str, str]) -> None:
        description = headers.get("Description", "")
        if status == "503" or "Deleted" in description:
            self.end(description or "no such consumer")
            return
        self.last_alive = self._clock.monotonic()
        if status == "100":
            return
        if status in {"404", "408"}:  # a request ran out, as each does after a while
            unused = int(headers.get("Nats-Pending-Messages", self._outstanding))
            self._outstanding = max(0, self._outstanding - unused)
            self._attention.set()
        else:  # leadership change, server shutdown, too many requests: ask anew after a pause
            self.end(f"{status} {description}")
