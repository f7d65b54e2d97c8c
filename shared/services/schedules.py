"""Keeping the KV bucket of schedules a true copy of PostgreSQL: the relay writes it, the reconciler finds drift.

The relay is the only writer, and one at a time over all API processes. An outbox row names a monitor, not its
content: the relay copies what is true when it sends, so rows may come twice or out of order and do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from uuid import UUID

import msgspec
import structlog
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.names import SCHEDULES_BUCKET
from shared.contracts.wire import Schedule
from shared.db.repositories import jobs, outbox
from shared.db.repositories.schedules import (
    ScheduleRow,
    active_revisions,
    active_schedules,
    queue_schedules,
    take_relay_lock,
)
from shared.db.session import Database
from shared.domain.clock import Clock, to_milliseconds
from shared.jobs.schedule import schedule_of_job
from shared.messaging.declarations import bucket_subject
from shared.messaging.errors import MessagingError
from shared.messaging.publisher import Publisher

log = structlog.get_logger(__name__)

BATCH = 500
POLL_SECONDS = 2.0
# A deletion is remembered long enough for every reader to have seen it, then takes no room any more.
_DELETE_HEADERS = {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "3600s"}


class ScheduleRelay:
    """Moves outbox rows into the bucket: at once when woken, else every two seconds."""

    def __init__(self, database: Database, publisher: Publisher, clock: Clock) -> None:
        self._database, self._publisher, self._clock = database, publisher, clock
        self._wake = asyncio.Event()
        self.last_success = clock.monotonic()

    def wake(self) -> None:
        """Something was committed."""
        self._wake.set()

    async def run(self) -> None:
        """Relay until cancelled. What fails stays in the outbox and is tried again."""
        while True:
            self._wake.clear()
            more = False
            try:
                more = await self.relay_once() == BATCH
                self.last_success = self._clock.monotonic()
            except (SQLAlchemyError, MessagingError, OSError) as error:
                log.warning("schedules could not be relayed", error=str(error).partition("\n")[0])
            if not more:
                await _wait(self._wake, POLL_SECONDS)

    async def relay_once(self) -> int:
        """Send one batch; answers how many rows it settled. Raises what the servers raise, and loses nothing."""
        async with self._database.system() as session:
            if not await take_relay_lock(session):
                return 0
            rows = await outbox.take(session, outbox.SCHEDULE_TOPIC, BATCH)
            if not rows:
                return 0
            monitor_ids = {UUID(row.key) for row in rows}
            schedules = {row.monitor_id: schedule_of(row) for row in await active_schedules(session, monitor_ids)}
            schedules |= {job.schedule_id: schedule_of_job(job) for job in await jobs.list_of_workers(session)}
            await self._copy(monitor_ids, schedules)
            await outbox.delete(session, [row.id for row in rows])
        return len(rows)

    async def _copy(self, monitor_ids: Collection[UUID], schedules: Mapping[UUID, Schedule]) -> None:
        """Put what is active, delete what is not, and return when the bucket has acknowledged all of it."""
        answers = []
        for monitor_id in monitor_ids:
            subject = bucket_subject(SCHEDULES_BUCKET, str(monitor_id))
            if schedule := schedules.get(monitor_id):
                answers.append(await self._publisher.publish(subject, msgspec.json.encode(schedule)))
            else:
                answers.append(await self._publisher.publish(subject, b"", headers=_DELETE_HEADERS))
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


class Reconciler:
    """Compares the bucket with PostgreSQL and queues every difference for the relay.

    ``ensure`` declares the bucket again, should it be gone.
    """

    def __init__(
        self,
        database: Database,
        bucket: Callable[[], Mapping[str, bytes]],
        relay: ScheduleRelay,
        ensure: Callable[[], Awaitable[object]],
    ) -> None:
        self._database, self._bucket, self._relay, self._ensure = database, bucket, relay, ensure

    async def reconcile(self) -> int:
        """Declare the bucket where it is gone, then compare; answers how many schedules differed."""
        await self._ensure()
        return await self.reconcile_once()

    async def reconcile_once(self) -> int:
        """Queue what differs; answers how many schedules that were."""
        async with self._database.system() as session:
            drifted = drift(await active_revisions(session), self._bucket())
            if drifted:
                log.warning("schedules differ from the database and are copied again", schedules=len(drifted))
                await queue_schedules(session, drifted)
        if drifted:
            self._relay.wake()
        return len(drifted)


def drift(revisions: Mapping[UUID, int], bucket: Mapping[str, bytes]) -> set[UUID]:
    """The monitors and jobs whose entry is missing, of another revision, unreadable, or should not be there."""
    copied: dict[UUID, int] = {}
    for key, value in bucket.items():
        try:
            copied[UUID(key)] = msgspec.json.decode(value, type=Schedule).revision
        except msgspec.DecodeError:
            copied[UUID(key)] = -1
        except ValueError:
            log.error("the bucket of schedules holds a key that is no monitor", key=key)
    return {key for key in revisions.keys() | copied.keys() if revisions.get(key) != copied.get(key)}


def schedule_of(row: ScheduleRow) -> Schedule:
    """A row as the schedulers read it; the check itself is passed on unread."""
    options = msgspec.json.encode(
        {
            "timeout_seconds": row.timeout_seconds,
            "retries": row.retries,
            "retry_delay_seconds": row.retry_delay_seconds,
        }
    )
    run = b'{"check":' + row.check_spec.encode() + b"," + options[1:]
    return Schedule(
        monitor_id=row.monitor_id,
        organisation_id=row.organisation_id,
        revision=row.revision,
        interval_ms=row.interval_seconds * 1000,
        starts_at_ms=to_milliseconds(row.starts_at),
        regions=tuple(row.regions),
        run=msgspec.Raw(run),
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
