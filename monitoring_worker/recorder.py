"""Results from the queue into PostgreSQL, in batches; each is acknowledged after its transaction, never before.

While the database is away the batch in hand is tried again and the rest waits in the queue: nothing is lost and
memory is bounded by one batch. A row that the database refuses for its content is set aside alone, so that it
can't hold up the others.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

import msgspec
import structlog
from nats.aio.msg import Msg
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.names import result_subject
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.db.errors import is_content_fault, is_missing_partition
from shared.db.repositories.results import ensure_partitions
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime
from shared.messaging.errors import PublishError
from shared.messaging.pull import PullLoop
from shared.observability import metrics
from shared.services.certificates import CertificateWatch
from shared.services.recording import record
from shared.tasks.failures import REFUSED, UNDECODABLE
from shared.tasks.letter_box import LetterBox, until_kept

log = structlog.get_logger(__name__)

# A message holds up to 100 results.
BATCH = 25
LINGER_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
REFUSED_RESULT = "store_result"
"""The name under which refused results stand among the dead letters."""


class Recorder:
    """Writes results until the pull loop ends."""

    def __init__(self, database: Database, pull: PullLoop, clock: Clock, letters: LetterBox) -> None:
        self._database, self._pull, self._clock, self._letters = database, pull, clock, letters
        self._certificates = CertificateWatch()
        self.failing_since: float | None = None
        self.last_error = ""
        self.refused = 0

    async def run(self) -> None:
        """Record until ``stop`` of the pull loop; raises ``ConsumerLostError``."""
        async for messages in self._pull.batches(BATCH, LINGER_SECONDS):
            readable = [(message, batch) for message in messages if (batch := await self._decode(message))]
            results = [result for _, batch in readable for result in batch.results]
            if results:
                await self._store(results)
            for message, _ in readable:
                await self._pull.settle(message, message.ack())

    async def _decode(self, message: Msg) -> ResultBatch | None:
        try:
            return msgspec.json.decode(message.data, type=ResultBatch)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self.refused += 1
            log.error("a message holds no results", subject=message.subject, reason=str(error))
            await self._put_aside(message, str(error))
            return None

    async def _put_aside(self, message: Msg, reason: str) -> None:
        try:
            await self._letters.put_message(message, UNDECODABLE, reason)
        except PublishError as error:
            log.warning("a message could not be kept as a dead letter yet", reason=str(error))
            await self._pull.settle(message, message.nak(delay=LONGEST_PAUSE_SECONDS))
        else:
            await self._pull.settle(message, message.term())

    async def _store(self, results: Sequence[ResultMessage]) -> None:
        """Store these for good: until they are stored, or refused one by one for their content."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._write(results)
                break
            except (OverflowError, ValueError) as error:  # a time that no calendar has
                await self._isolate(results, error)
                return
            except (SQLAlchemyError, OSError) as error:
                if is_missing_partition(error) and await self._make_room(results):
                    continue
                if is_content_fault(error):
                    await self._isolate(results, error)
                    return
                self._note_failure(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        self.failing_since = None

    async def _write(self, results: Sequence[ResultMessage]) -> None:
        async with self._database.system() as session:
            now_ms = self._clock.now_ms()
            stored = await record(session, await self._certificates.judge(session, results, now_ms), now_ms)
        metrics.results_stored.inc(stored)
        oldest_ms = min(
            result.slot_ms if result.started_at_ms is None else result.started_at_ms for result in results
        )
        metrics.result_store_lag.set((self._clock.now_ms() - oldest_ms) / 1000)

    async def _make_room(self, results: Sequence[ResultMessage]) -> bool:
        """Create the missing days; False when there was none to create, so that this can't go on for ever."""
        days = {to_datetime(result.slot_ms).date() for result in results}
        async with self._database.system() as session:
            return await ensure_partitions(session, days) > 0

    async def _isolate(self, results: Sequence[ResultMessage], error: Exception) -> None:
        """Halve what the database refuses until the one culprit stands alone."""
        if len(results) > 1:
            middle = len(results) // 2
            await self._store(results[:middle])
            await self._store(results[middle:])
            return
        self.refused += 1
        reason = str(error).partition("\n")[0]
        log.error("a result can't be stored", slot=results[0].key.message_id, reason=reason)
        await self._bury(results[0], reason)

    async def _bury(self, result: ResultMessage, reason: str) -> None:
        """Keep what the database refuses as a dead letter; returns when it is kept."""
        now_ms = self._clock.now_ms()
        put = functools.partial(
            self._letters.put_content,
            task=REFUSED_RESULT,
            subject=result_subject(result.region),
            payload=msgspec.json.encode(ResultBatch((result,))),
            identity=f"{REFUSED_RESULT}:{result.key.message_id}",
            moment_ms=result.slot_ms if result.slot_ms in range(now_ms) else 0,
            failed_ms=now_ms,
            kind=REFUSED,
            reason=reason,
        )
        await until_kept(put)

    def _note_failure(self, error: Exception) -> None:
        self.last_error = str(error).partition("\n")[0]
        if self.failing_since is None:
            self.failing_since = self._clock.monotonic()
        log.error("results can't be stored; they wait in the queue", error=self.last_error)
