"""Results on their way into the queue that the recorder empties."""

from __future__ import annotations

import asyncio

import structlog

from monitoring_worker.checking import encode_result
from shared.contracts.wire import ResultMessage
from shared.messaging.errors import PublishError
from shared.messaging.publisher import Publisher

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


class QueuedResults:
    """Publishes each result until the queue has it; the task that made it is acknowledged only after that.

    Waiting here holds the task's place among those running, so a queue that is away slows the worker down
    instead of filling its memory.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def put(self, message: ResultMessage) -> None:
        subject, payload, message_id = encode_result(message)
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._publisher.send(subject, payload, message_id=message_id)
                return
            except PublishError as error:
                log.warning("a result is not in the queue yet", slot=message_id, error=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
