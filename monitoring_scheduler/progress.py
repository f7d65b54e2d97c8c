"""How far the leader has come, where every scheduler can read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from shared.contracts.names import PROGRESS_BUCKET, WATERMARK_KEY
from shared.contracts.wire import Progress
from shared.messaging.declarations import bucket_subject
from shared.messaging.publisher import Publisher, PublishReceipt

log = structlog.get_logger(__name__)

REPORT_SECONDS = 0.4


class ProgressReporter:
    """Writes the watermark while this scheduler sends: as the leader, or because no leader is heard of."""

    def __init__(self, publisher: Publisher, current: Callable[[], Progress | None]) -> None:
        self._publisher, self._current = publisher, current

    async def run(self) -> None:
        """Report until cancelled; what can't be written is overtaken by the next report.

        The answer is not waited for: the others hear a report also when the bucket is without a leader, and a
        pause would look to them as if this scheduler were gone.
        """
        subject = bucket_subject(PROGRESS_BUCKET, WATERMARK_KEY)
        while True:
            if progress := self._current():
                written = await self._publisher.publish(subject, msgspec.json.encode(progress))
                written.add_done_callback(_note_failure)
            await asyncio.sleep(REPORT_SECONDS)


def _note_failure(written: asyncio.Future[PublishReceipt]) -> None:
    if not written.cancelled() and (error := written.exception()):
        log.warning("the watermark could not be written", error=str(error))


def read_progress(value: bytes | None) -> Progress | None:
    """A report as it stands in the bucket; None when there is none that can be read."""
    if not value:  # a deletion is empty
        return None
    try:
        return msgspec.json.decode(value, type=Progress)
    except (msgspec.DecodeError, RecursionError) as error:
        log.error("the watermark can't be read", error=str(error))
        return None
