"""Which regions some worker serves right now, so that whoever names another one is told at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

import structlog
from nats.errors import Error as NatsError
from nats.js.api import ConsumerInfo

from shared.contracts import names
from shared.domain.region import PLATFORM_REGION
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 5.0
LOOKS: Final = 3
"""Between two requests a reader has none open for a moment, so the last few looks count together."""
ENOUGH: Final = 2
"""The first look can't see that a busy worker was given checks."""
_PREFIX: Final = names.worker_consumer("")


class RegionWatch:
    """Looks at the consumers of the checks again and again; ``warnings`` answers from the last looks."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._looks: deque[set[str]] = deque(maxlen=LOOKS)
        self._delivered: dict[str, int] = {}

    async def run(self) -> None:
        """Look every five seconds, until cancelled. While NATS is away nothing is known, and nothing said."""
        while not is_cancelled():
            try:
                await self.look()
            except (NatsError, MessagingError, OSError) as error:
                self._looks.clear()
                log.info("the regions of workers can't be seen", error=describe(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Raises ``nats.errors.Error``."""
        offset, served = 0, set()
        while page := await self._connection.js.consumers_info(names.CHECKS_STREAM, offset=offset):
            offset += len(page)
            served |= {info.name.removeprefix(_PREFIX) for info in page if self._is_read(info)}
        self._looks.append(served - {PLATFORM_REGION})

    def _is_read(self, info: ConsumerInfo) -> bool:
        """Somebody asks for checks, or was given some since the last look: the busiest worker asks for none."""
        delivered = info.delivered.consumer_seq if info.delivered else 0
        before = self._delivered.get(info.name, delivered)
        self._delivered[info.name] = delivered
        return info.name.startswith(_PREFIX) and (bool(info.num_waiting) or delivered != before)

    def warnings(self, regions: Iterable[str]) -> list[str]:
        """A sentence for each of these regions that no worker serves; none while that is not known."""
        if len(self._looks) < ENOUGH:
            return []
        served = set().union(*self._looks)
        shown = ", ".join(sorted(served)) or "none"
        return [
            f"no worker serves region {region!r}, so nothing is checked there; served are: {shown}"
            for region in regions
            if region not in served
        ]
