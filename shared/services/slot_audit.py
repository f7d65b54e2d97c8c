"""Proves that every due slot is accounted for, and accounts for the ones that are not.

It reads the schedules and the results in PostgreSQL and nothing else. What the queue, a scheduler or a worker lost
without a word is found here and stored as missed, with a reason and a line in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.repositories.audit import count_stored, periods_since, stored_keys, take_audit_lock
from shared.db.repositories.results import store_results
from shared.db.session import Database
from shared.domain.audit import (
    LONGEST_SETTLING_MS,
    Books,
    Period,
    Span,
    Spans,
    differences,
    expected,
    latest_spans,
    spans_since,
    suspects,
)
from shared.domain.clock import Clock
from shared.domain.errors import MissedReason
from shared.domain.result import SlotKey, missed
from shared.services.recording import row_of

log = structlog.get_logger(__name__)

EVERY_SECONDS = 60.0
LENGTH_MS = 15 * 60_000
CATCH_UP_MS = 26 * 3_600_000
STEP_MS = 3_600_000
_BATCH = 500
_FOUND = "nothing was stored for this check; the slot audit found it"


async def audit_since(session: AsyncSession, after_ms: int, now_ms: int, until_ms: int | None = None) -> Books:
    """The books from ``after_ms`` to ``until_ms`` or to where slots are settled. Reads only."""
    periods = await periods_since(session, after_ms)
    spans = spans_since(periods, after_ms, now_ms)
    if until_ms is not None:
        spans = {
            monitor_id: Span(span.after_ms, min(span.until_ms, until_ms)) for monitor_id, span in spans.items()
        }
    return await _balance(session, periods, spans)


async def audit_latest(session: AsyncSession, length_ms: int, now_ms: int) -> Books:
    """The books of the last ``length_ms`` that are settled. Reads only; for system sessions."""
    periods = await periods_since(session, now_ms - length_ms - LONGEST_SETTLING_MS)
    return await _balance(session, periods, latest_spans(periods, length_ms, now_ms))


async def _balance(session: AsyncSession, periods: Sequence[Period], spans: Spans) -> Books:
    if not spans:
        return Books()
    due = expected(periods, spans)
    doubtful = suspects(periods, spans, due, await count_stored(session, spans)) & spans.keys()
    if not doubtful:
        return Books(due.total())
    stored = await stored_keys(session, spans, doubtful)
    looked_at = [period for period in periods if period.cadence.monitor_id in doubtful]
    unaccounted, unscheduled = differences(looked_at, spans, stored)
    return Books(due.total(), unaccounted, unscheduled)


class SlotAuditor:
    """Audits every minute, from one API process at a time."""

    def __init__(self, database: Database, clock: Clock, reasons: Callable[[], Mapping[str, MissedReason]]) -> None:
        self._database, self._clock, self._reasons = database, clock, reasons

    async def run(self) -> None:
        """Look back a day at first, then a quarter of an hour every minute, until cancelled."""
        is_caught_up = False
        while True:
            try:
                if not is_caught_up:
                    await self.catch_up()
                is_caught_up = True
                await self.audit_once(LENGTH_MS)
            except (SQLAlchemyError, OSError) as error:
                log.warning("slots could not be audited", error=str(error).partition("\n")[0])
            await asyncio.sleep(EVERY_SECONDS)

    async def catch_up(self) -> int:
        """Audit the time in which everything may have been down, hour by hour: a day of lost slots is many."""
        now = self._clock.now_ms()
        found = 0
        for start in range(now - CATCH_UP_MS, now, STEP_MS):
            async with self._database.system() as session:
                if not await take_audit_lock(session):
                    return found
                books = await audit_since(session, start, now, start + STEP_MS)
            found += await account(self._database, books, self._reasons())
        return found

    async def audit_once(self, length_ms: int) -> int:
        """Audit, and account for what was lost; answers how many slots that were."""
        async with self._database.system() as session:
            if not await take_audit_lock(session):
                return 0
            books = await audit_latest(session, length_ms, self._clock.now_ms())
        return await account(self._database, books, self._reasons())


async def account(database: Database, books: Books, reasons: Mapping[str, MissedReason]) -> int:
    """Store the unaccounted slots as missed; ``reasons`` by region, else ``scheduler_gap``. Answers how many.

    A result that arrives after all replaces the record.
    """
    for start in range(0, len(books.unaccounted), _BATCH):
        chunk = books.unaccounted[start : start + _BATCH]
        async with database.system() as session:
            await store_results(session, [row_of(_record(key, reasons)) for key in chunk])
    if books.unaccounted:
        log.error(
            "slots were lost without a record and are stored as missed",
            slots=len(books.unaccounted),
            first=books.unaccounted[0].message_id,
            last=books.unaccounted[-1].message_id,
        )
    return len(books.unaccounted)


def _record(key: SlotKey, reasons: Mapping[str, MissedReason]) -> ResultMessage:
    reason = reasons.get(key.region, MissedReason.SCHEDULER_GAP)
    return ResultMessage(
        monitor_id=key.monitor_id,
        revision=0,
        region=key.region,
        slot_ms=key.slot_ms,
        started_at_ms=None,
        verdict=missed(reason, _FOUND),
    )
