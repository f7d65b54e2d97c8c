"""Receiving pings: an answer of "OK" means that the ping is stored, and will be judged.

Pings that come while a batch is being committed make up the next batch, so one transaction carries as many as there
are. While PostgreSQL is away, pings of known addresses are handed to JetStream, and stored when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec
import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.names import PINGS_SUBJECT
from shared.contracts.wire import PingMessage
from shared.db.base import new_id
from shared.db.repositories import heartbeats
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime
from shared.messaging.cancellation import is_cancelled
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.observability import metrics
from shared.services.errors import ServiceError

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 5000
BEAT_SECONDS: Final = 2.0
_BATCH: Final = 1000
_STORE_SECONDS: Final = 3.0
_REST_SECONDS: Final = 5.0
_FAMILIAR: Final = 100_000
_LONGEST_BEAT_MS: Final = 5000


class NotReceivedError(ServiceError):
    """A ping could not be handed over durably; its sender should try again."""

    code = "not_received"


@dataclass(frozen=True, slots=True)
class _Waiting:
    ping: PingMessage
    known: asyncio.Future[bool]


class PingDesk:
    """Takes pings of any number of requests at once; ``run`` stores them.

    ``refused`` counts pings that were not taken. The pings in hand are bounded, and so is what is remembered of
    known tokens, which is used only while PostgreSQL cannot be asked.
    """

    def __init__(self, database: Database, clock: Clock, publisher: Publisher | None = None) -> None:
        self._database, self._clock, self._publisher = database, clock, publisher
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._familiar: dict[bytes, None] = {}
        self._away_until = 0.0
        self.refused = 0

    async def receive(self, ping: PingMessage) -> bool:
        """Whether the token is known; the ping is stored when it is. Raises ``NotReceivedError``."""
        if len(self._waiting) >= MAX_WAITING:
            self._count_refused(1)
            raise NotReceivedError("too many pings at this moment: send it again")
        waiting = _Waiting(ping, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.known

    async def run(self) -> None:
        """Store pings until cancelled."""
        while not is_cancelled():
            await self._arrived.wait()
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            if not self._waiting:
                self._arrived.clear()
            try:
                await self._settle(batch)
            finally:
                _answer(batch, set(), NotReceivedError("the server stops: send it again"))

    async def _settle(self, batch: Sequence[_Waiting]) -> None:
        if self._clock.monotonic() >= self._away_until:
            try:
                known = await self._store([waiting.ping for waiting in batch])
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                self._away_until = self._clock.monotonic() + _REST_SECONDS
                reason = str(error).partition("\n")[0] or type(error).__name__
                log.warning("pings cannot be stored", error=reason, pings=len(batch))
            else:
                self._remember(waiting.ping.token_hash for waiting in batch if waiting.ping.id in known)
                _answer(batch, known, None)
                return
        handed_over = await self._hand_over([w.ping for w in batch if w.ping.token_hash in self._familiar])
        self._count_refused(len(batch) - len(handed_over))
        _answer(batch, handed_over, NotReceivedError("pings cannot be stored at this moment: send it again"))

    async def _store(self, pings: Sequence[PingMessage]) -> set[UUID]:
        async with asyncio.timeout(_STORE_SECONDS), self._database.system() as session:
            known = await heartbeats.store_pings(session, pings)
        metrics.pings_received.inc(len(known))
        return known

    async def _hand_over(self, pings: Sequence[PingMessage]) -> set[UUID]:
        """Give pings to JetStream; answers the ids of those that it has acknowledged."""
        if self._publisher is None:
            return set()
        answers = [
            await self._publisher.publish(PINGS_SUBJECT, msgspec.json.encode(ping), message_id=str(ping.id))
            for ping in pings
        ]
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        kept = {
            ping.id for ping, outcome in zip(pings, outcomes, strict=True) if not isinstance(outcome, Exception)
        }
        metrics.pings_received.inc(len(kept))
        if failure := next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None):
            log.error("pings are refused", reason=str(failure), pings=len(pings) - len(kept))
        return kept

    def _remember(self, hashes: Iterable[bytes]) -> None:
        for token_hash in hashes:
            self._familiar.pop(token_hash, None)
            self._familiar[token_hash] = None
        while len(self._familiar) > _FAMILIAR:
            del self._familiar[next(iter(self._familiar))]

    def _count_refused(self, count: int) -> None:
        self.refused += count
        metrics.pings_refused.inc(count)


def _answer(batch: Sequence[_Waiting], known: Collection[UUID], otherwise: NotReceivedError | None) -> None:
    """Settle what is not settled yet: known, or else the error, or else not known."""
    for waiting in batch:
        if waiting.known.done():
            continue
        if waiting.ping.id in known or otherwise is None:
            waiting.known.set_result(waiting.ping.id in known)
        else:
            waiting.known.set_exception(otherwise)


class ReceptionLog:
    """Writes down that this process can receive: what is missing while it could not proves nothing."""

    def __init__(self, database: Database, desk: PingDesk, clock: Clock) -> None:
        self._database, self._desk, self._clock = database, desk, clock
        self._span_id, self._from_ms, self._until_ms, self._refused = new_id(), -1, -1, 0

    async def run(self) -> None:
        """Write every two seconds until cancelled."""
        while True:
            try:
                await self.note()
            except (SQLAlchemyError, OSError) as error:
                log.warning("reception could not be noted", error=str(error).partition("\n")[0])
            await asyncio.sleep(BEAT_SECONDS)

    async def note(self) -> None:
        """Extend the present span, or begin a new one after a time in which pings may have been lost."""
        now_ms, refused = self._clock.now_ms(), self._desk.refused
        if self._from_ms < 0 or refused != self._refused or now_ms - self._until_ms > _LONGEST_BEAT_MS:
            self._span_id, self._from_ms = new_id(), now_ms
        self._refused = refused
        async with self._database.system() as session:
            times = to_datetime(self._from_ms), to_datetime(now_ms)
            await heartbeats.note_receiving(session, self._span_id, *times)
        self._until_ms = now_ms


async def store_handed_over(database: Database, pull: PullLoop) -> None:
    """Bring the pings that JetStream has into PostgreSQL, until cancelled; acknowledged after their transaction."""
    async for messages in pull.batches(_BATCH, 0.1):
        pings = []
        for message in messages:
            try:
                pings.append(msgspec.json.decode(message.data, type=PingMessage))
            except msgspec.DecodeError as error:
                log.error("a message that is no ping is dropped", reason=str(error))
        while pings:
            try:
                async with database.system() as session:
                    known = await heartbeats.store_pings(session, pings)
                log.info("pings from the time without a database are stored", pings=len(known))
                break
            except (SQLAlchemyError, OSError) as error:
                log.warning("pings wait in the queue", error=str(error).partition("\n")[0])
                await asyncio.sleep(_REST_SECONDS)
        for message in messages:
            await pull.settle(message, message.ack())
