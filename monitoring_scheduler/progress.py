"""How far the leader has come, where every scheduler can read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog
from nats.errors import Error as NatsError

from shared.contracts.names import PROGRESS_BUCKET, WATERMARK_KEY
from shared.contracts.wire import Progress
from shared.messaging.connect import describe
from shared.messaging.declarations import bucket_subject
from shared.messaging.errors import PublishError
from shared.messaging.publisher import Publisher

log = structlog.get_logger(__name__)

REPORT_SECONDS = 0.4


class ProgressReporter:
    """Writes the watermark while this scheduler leads."""

    def __init__(self, publisher: Publisher, current: Callable[[], Progress | None]) -> None:
        self._publisher, self._current = publisher, current

    async def run(self) -> None:
        """Report until cancelled; what can't be written is overtaken by the next report."""
        subject = bucket_subject(PROGRESS_BUCKET, WATERMARK_KEY)
        while True:
            if progress := self._current():
                try:
                    await self._publisher.send(subject, msgspec.json.encode(progress))
                except (PublishError, NatsError) as error:
                    log.warning("the watermark could not be written", error=describe(error))
            await asyncio.sleep(REPORT_SECONDS)


def read_progress(value: bytes | None) -> Progress | None:
    """A report as it stands in the bucket; None when there is none that can be read."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Progress)
    except msgspec.DecodeError as error:
        log.error("the watermark can't be read", error=str(error))
        return None
