"""Results on their way into the queue that the recorder empties."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec
import structlog

from shared.contracts.names import result_subject
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.messaging.errors import PublishError
from shared.messaging.publisher import Publisher

log = structlog.get_logger(__name__)

LINGER_SECONDS = 0.2
BATCH = 100
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

_Waiting = list[tuple[ResultMessage, "asyncio.Future[None]"]]


class QueuedResults:
    """Publishes results in small batches: a message costs the queue far more than a result does.

    ``put`` returns when the queue has the result; the task that made it is acknowledged only after that. Waiting
    here holds the task's place among those running, so a queue that is away slows the worker down instead of
    filling its memory.
    """

    def __init__(self, publisher: Publisher, region: str) -> None:
        self._publisher, self._subject = publisher, result_subject(region)
        self._waiting: _Waiting = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def put(self, message: ResultMessage) -> None:
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        self._waiting.append((message, stored))
        if len(self._waiting) >= BATCH:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(LINGER_SECONDS, self._flush)
        await stored

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if self._timer:
            self._timer.cancel()
            self._timer = None
        task = asyncio.create_task(self._send(batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, batch: _Waiting) -> None:
        payload = msgspec.json.encode(ResultBatch(tuple(message for message, _ in batch)))
        # Sent again under the same id. Not one made of its slots: a check that runs twice may begin two batches,
        # and the stream would drop the second with all that is in it. What comes twice is let in once by its key.
        message_id = uuid4().hex
        pause = FIRST_PAUSE_SECONDS
        while not await self._sent(payload, message_id):
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        for _, stored in batch:
            if not stored.done():
                stored.set_result(None)

    async def _sent(self, payload: bytes, message_id: str) -> bool:
        try:
            await self._publisher.send(self._subject, payload, message_id=message_id)
        except PublishError as error:
            log.warning("results are not in the queue yet", batch=message_id, error=str(error))
            return False
        return True
