"""When the machine's wall clock jumps, the server's clock says whether the jump was a fault or its mending."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from nats.errors import Error as NatsError

from shared.contracts.names import PROGRESS_BUCKET
from shared.domain.clock import SteadyClock, to_milliseconds
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import bucket_stream
from shared.messaging.errors import MessagingError
from shared.messaging.stream_state import stream_state

LOOK_EVERY_SECONDS: Final = 2.0
# Time services move a clock by less than this without anybody noticing.
SMALL_STEP_MS: Final = 1_000

_log = structlog.get_logger(__name__)


class ClockWatch:
    """Keeps a steady clock right. ``jump_ms`` is a jump of the machine's clock that is being ignored, else 0."""

    def __init__(self, connection: NatsConnection, clock: SteadyClock) -> None:
        self._connection, self._clock = connection, clock
        self.jump_ms = 0

    def problem(self) -> str | None:
        """A sentence while the machine's clock is held to be wrong: the process goes on with the right time."""
        return f"this machine's clock is {self.jump_ms / 1000:+.1f} s off and is ignored" if self.jump_ms else None

    async def run(self) -> None:
        """Look every two seconds, until cancelled."""
        while not is_cancelled():
            await self.look()
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        ahead = self._clock.ahead_ms()
        if abs(ahead) <= SMALL_STEP_MS:
            self.jump_ms = 0
            self._clock.follow_machine()
            return
        server_ms = await self._server_ms()
        if server_ms is None:
            return
        steady_error = abs(server_ms - self._clock.now_ms())
        machine_error = abs(server_ms - self._clock.now_ms() - ahead)
        if machine_error < steady_error:
            _log.warning("this machine's clock was set, and rightly so", seconds=ahead / 1000)
            self._clock.follow_machine()
            self.jump_ms = 0
        elif self.jump_ms != ahead:
            _log.error("this machine's clock was set wrongly and is ignored", seconds=ahead / 1000)
            self.jump_ms = ahead

    async def _server_ms(self) -> int | None:
        try:
            told = (await stream_state(self._connection, bucket_stream(PROGRESS_BUCKET))).ts
        except (NatsError, MessagingError) as error:
            _log.warning("the server did not tell the time", error=describe(error))
            return None
        return None if told is None else to_milliseconds(told)
