"""Streams that were deleted and made anew have lost what was in them: the slots of that time are sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog
from nats.errors import Error as NatsError

from shared.contracts.names import CHECKS_STREAM, RESULTS_STREAM
from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.messaging.stream_state import StreamMissingError, stream_state

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 2.0
# A check and its result spend about a second in the streams; what was sent this long before the last look that
# found a stream intact may have been lost with it.
IN_TRANSIT_SECONDS: Final = 5.0


class StreamGuard:
    """Looks at the streams of checks and results, re-creates a missing one, and has lost slots repeated.

    Message ids make it harmless for slots that were not lost, and the key of a result for checks that run twice.
    """

    def __init__(
        self,
        connection: NatsConnection,
        clock: Clock,
        ensure: Callable[[], Awaitable[None]],
        repeat_since: Callable[[float], int],
    ) -> None:
        self._connection, self._clock = connection, clock
        self._ensure, self._repeat_since = ensure, repeat_since
        self._created: dict[str, datetime | None] = {}
        self._intact = clock.monotonic()

    async def run(self) -> None:
        """Look every two seconds, until cancelled."""
        while not is_cancelled():
            try:
                await self.look()
            except (NatsError, MessagingError) as error:
                log.warning("the streams can't be looked at", error=describe(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        now = self._clock.monotonic()
        created = {name: await self._creation(name) for name in (CHECKS_STREAM, RESULTS_STREAM)}
        if self._created and created != self._created:
            repeated = self._repeat_since(self._intact - IN_TRANSIT_SECONDS)
            log.error("a stream was lost and made anew; its slots are sent again", slots=repeated)
        self._created, self._intact = created, now

    async def _creation(self, name: str) -> datetime | None:
        try:
            return (await stream_state(self._connection, name)).created
        except StreamMissingError:
            log.error("a stream is missing and made anew", stream=name)
            await self._ensure()
            return (await stream_state(self._connection, name)).created
