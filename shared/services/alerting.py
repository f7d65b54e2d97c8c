"""From incidents to deliveries to the queue, in the API process.

Three steps, each a transaction of its own, so that a crash between any two loses nothing and repeats nothing:
changes of incidents (outbox rows) become deliveries in the transaction that deletes them; steps and reminders that
are due become deliveries in the transaction that moves the incident on; and a delivery is handed to the queue again
and again until its outcome is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.availability import is_unavailable
from shared.db.repositories import deliveries, escalations, outbox
from shared.db.repositories.deliveries import Queued
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime
from shared.messaging.cancellation import is_cancelled
from shared.messaging.errors import MessagingError
from shared.services.alert_planning import Planner

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.1
SWEEP_SECONDS = 1.0
BATCH = 200
QUEUE_BATCH = 500
AGAIN_SECONDS = 60.0
"""Without an outcome a delivery is handed over again: what the queue has lost must not be lost."""
LONGEST_AGAIN_SECONDS = 900.0
"""Each time after twice as long: while nobody works they would fill the queue, and be in the way of new ones."""
ASIDE_SECONDS = 30.0

Key = TypeVar("Key", int, UUID)


class DeliveryQueue(Protocol):
    """Hands deliveries to workers."""

    async def put(self, delivery: Queued) -> None:
        """Raises ``MessagingError`` when it may not have been taken."""
        ...


class AlertRelay:
    """Looks ten times a second for what people are to be told."""

    def __init__(self, database: Database, queue: DeliveryQueue, clock: Clock) -> None:
        self._database, self._queue, self._clock = database, queue, clock
        self._planner = Planner()
        self._swept = float("-inf")
        self._aside: dict[int | UUID, float] = {}
        self.last_success = clock.monotonic()

    async def run(self) -> None:
        """Relay until cancelled. What fails stays where it is and is tried again."""
        while not is_cancelled():
            busy = False
            try:
                busy = await self.look_once()
                self.last_success = self._clock.monotonic()
            except (SQLAlchemyError, MessagingError, OSError) as error:
                log.warning("alerts could not be relayed", error=str(error).partition("\n")[0])
            if not busy:
                await asyncio.sleep(POLL_SECONDS)

    async def look_once(self) -> bool:
        """One look; answers whether there is more to do at once."""
        found = await self._careful(self._take_changes)
        if self._clock.monotonic() - self._swept >= SWEEP_SECONDS:
            await self._careful(self._take_steps)
            self._swept = self._clock.monotonic()
        handed = await self._hand_over()
        return found > 0 or handed == QUEUE_BATCH

    async def _careful(self, take: Callable[[int], Awaitable[int]]) -> int:
        """Take a whole batch; when one of it can't be planned, take one at a time and pass that one by for a while.

        Such a fault is ours. It may delay one alert, and not all of them.
        """
        for limit in (BATCH, 1):
            try:
                return await take(limit)
            except Exception as error:
                if isinstance(error, OSError) or is_unavailable(error):
                    raise
                log.exception("incidents can't be planned", incidents=limit)
        return 0

    async def _take_changes(self, limit: int) -> int:
        now = to_datetime(self._clock.now_ms())
        async with self._database.system() as session:
            found = await escalations.take_transitions(session, now, limit, self._passed_by(int))
            if limit == 1:
                self._pass_by(change.outbox_id for change in found)
            done = await self._planner.transitions(session, found, now)
            await outbox.delete(session, done)
        for outbox_id in done:
            self._aside.pop(outbox_id, None)
        return len(done)

    async def _take_steps(self, limit: int) -> int:
        now = to_datetime(self._clock.now_ms())
        async with self._database.system() as session:
            incidents = await escalations.due_incidents(session, now, limit, self._passed_by(UUID))
            if limit == 1:
                self._pass_by(incidents)
            await self._planner.steps(session, incidents, now)
        for incident_id in incidents:
            self._aside.pop(incident_id, None)
        return len(incidents)

    def _pass_by(self, keys: Iterable[int | UUID]) -> None:
        """Should these fail again, the next looks leave them out."""
        until = self._clock.monotonic() + ASIDE_SECONDS
        self._aside.update(dict.fromkeys(keys, until))

    def _passed_by(self, kind: type[Key]) -> list[Key]:
        now = self._clock.monotonic()
        self._aside = {key: until for key, until in self._aside.items() if until > now}
        return [key for key in self._aside if isinstance(key, kind)]

    async def _hand_over(self) -> int:
        now = to_datetime(self._clock.now_ms())
        async with self._database.system() as session:
            found = await deliveries.take_due(session, now, QUEUE_BATCH)
            return await self._put(session, found) if found else 0

    async def _put(self, session: AsyncSession, found: Sequence[Queued]) -> int:
        """Answers how many the queue has taken; the others are due again at the next look."""
        outcomes = await asyncio.gather(*(self._queue.put(each) for each in found), return_exceptions=True)
        taken = [each.id for each, outcome in zip(found, outcomes, strict=True) if outcome is None]
        now = to_datetime(self._clock.now_ms())
        await deliveries.mark_queued(session, taken, now, again=AGAIN_SECONDS, longest=LONGEST_AGAIN_SECONDS)
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, MessagingError | OSError):
                raise failure
        if failures:
            log.warning("deliveries could not be queued", deliveries=len(failures), error=str(failures[0]))
        return len(taken)
