"""Proves that every due slot is accounted for, and accounts for the ones that are not.

It reads the schedules and the results in PostgreSQL and nothing else. What the queue, a scheduler or a worker lost
without a word is found here and stored as missed, with a reason and a line in the log.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.repositories.audit import count_stored, periods_since, stored_keys
from shared.db.repositories.results import store_results
from shared.db.session import Database
from shared.domain.audit import Books, differences, expected, settled_spans, suspects
from shared.domain.errors import MissedReason
from shared.domain.result import SlotKey, missed
from shared.services.recording import row_of

log = structlog.get_logger(__name__)

_BATCH = 500
_FOUND = "nothing was stored for this check; the slot audit found it"


async def audit(session: AsyncSession, after_ms: int, now_ms: int) -> Books:
    """The books from ``after_ms`` to where slots are settled. Reads only."""
    periods = await periods_since(session, after_ms)
    spans = settled_spans(periods, after_ms, now_ms)
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
