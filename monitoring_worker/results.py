"""Results on their way into the queue that the recorder empties."""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import uuid4

import msgspec
import structlog
from msgspec.structs import replace

from shared.contracts.names import result_subject
from shared.contracts.wire import EncodedResults, ResultMessage
from shared.domain.result import CheckVerdict
from shared.messaging.errors import PublishError
from shared.messaging.publisher import Publisher

log = structlog.get_logger(__name__)

LINGER_SECONDS = 0.2
BATCH = 100
# A server takes messages of 1 MB unless it is told otherwise, and refuses a larger one for ever.
BATCH_BYTES: Final = 256 * 1024
LARGEST_RESULT_BYTES: Final = 512 * 1024
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


class QueuedResults:
    """Publishes results in small batches: a message costs the queue far more than a result does.

    What ``put`` answers is done when the queue has the result; the task that made it is acknowledged only after
    that. Waiting for it holds the task's place among those running, so a queue that is away slows the worker down
    instead of filling its memory. Only the encoded result is kept meanwhile: it needs a fraction of the room.
    """

    def __init__(self, publisher: Publisher, region: str) -> None:
        self._publisher, self._subject = publisher, result_subject(region)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._stored: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def put(self, message: ResultMessage) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        encoded = _encoded(message)
        self._waiting.append(encoded)
        self._stored.append(stored)
        self._waiting_bytes += len(encoded)
        if len(self._waiting) >= BATCH or self._waiting_bytes >= BATCH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(LINGER_SECONDS, self._flush)
        return stored

    def _flush(self) -> None:
        payload = msgspec.json.encode(EncodedResults(tuple(msgspec.Raw(encoded) for encoded in self._waiting)))
        stored = self._stored
        self._waiting, self._waiting_bytes, self._stored = [], 0, []
        if self._timer:
            self._timer.cancel()
            self._timer = None
        task = asyncio.create_task(self._send(payload, stored))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, payload: bytes, stored: list[asyncio.Future[None]]) -> None:
        # Sent again under the same id. Not one made of its slots: a check that runs twice may begin two batches,
        # and the stream would drop the second with all that is in it. What comes twice is let in once by its key.
        message_id = uuid4().hex
        pause = FIRST_PAUSE_SECONDS
        while not await self._sent(payload, message_id):
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        for future in stored:
            if not future.done():
                future.set_result(None)

    async def _sent(self, payload: bytes, message_id: str) -> bool:
        try:
            await self._publisher.send(self._subject, payload, message_id=message_id)
        except PublishError as error:
            log.warning("results are not in the queue yet", batch=message_id, error=str(error))
            return False
        return True


def _encoded(message: ResultMessage) -> bytes:
    """The result as it travels; the rare one that no server would take leaves its details behind."""
    encoded = msgspec.json.encode(message)
    if len(encoded) <= LARGEST_RESULT_BYTES:
        return encoded
    log.error("the details of a result are too large to be kept", slot=message.key.message_id, size=len(encoded))
    verdict = message.verdict
    bare = CheckVerdict(verdict.status, verdict.attempts, verdict.error, verdict.timings_ms)
    return msgspec.json.encode(replace(message, verdict=bare))
