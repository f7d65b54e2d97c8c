"""Proves that every due slot is accounted for, and accounts for the ones that are not.

It reads the schedules and the results in PostgreSQL and nothing else. What the queue, a scheduler or a worker lost
without a word is found here and stored as missed, with a reason and a line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.repositories.audit import count_stored, periods_since, stored_keys
from shared.db.repositories.results import ensure_partitions, store_results
from shared.domain.audit import (
    LONGEST_SETTLING_MS,
    Books,
    Period,
    Spans,
    differences,
    expected,
    latest_spans,
    spans_since,
    suspects,
)
from shared.domain.clock import to_datetime
from shared.domain.errors import MissedReason
from shared.domain.result import SlotKey, missed
from shared.jobs.context import JobContext
from shared.services.recording import row_of

log = structlog.get_logger(__name__)

LENGTH_MS = 15 * 60_000
FIRST_LOOK_MS = 26 * 3_600_000
STEP_MS = 3_600_000
_RESERVE_SECONDS = 60.0
_DAY_MS = 86_400_000
_BATCH = 500
_FOUND = "nothing was stored for this check; the slot audit found it"


async def audit_since(session: AsyncSession, after_ms: int, now_ms: int) -> Books:
    """The books from ``after_ms`` to where slots are settled. Reads only; for system sessions."""
    periods = await periods_since(session, after_ms)
    return await _balance(session, periods, spans_since(periods, after_ms, now_ms))


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
    """The work of the job that audits every minute.

    ``reasons`` says by region why slots were lost just now. Nothing older than ``retention_days`` is audited: its
    results may be gone already.
    """

    def __init__(self, reasons: Callable[[], Mapping[str, MissedReason]], retention_days: int) -> None:
        self._reasons, self._retention_days = reasons, retention_days

    async def audit(self, context: JobContext) -> None:
        """Audit from where the last run came to, hour by hour: an outage may have been of any length.

        What does not fit into the time of a run is left to the next one.
        """
        now_ms = context.clock.now_ms()
        done_ms = audited_until(context.checkpoint, now_ms, self._retention_days)
        for moment_ms, length_ms in audit_steps(done_ms, now_ms):
            context.raise_if_timed_out()
            async with context.transaction() as session:
                books = await audit_latest(session, length_ms, moment_ms)
                await account(session, books, self._reasons())
                context.checkpoint = {"audited_until_ms": moment_ms}
            context.processed += books.due
            if moment_ms < now_ms and context.seconds_left < _RESERVE_SECONDS:
                log.warning("the slot audit is behind and goes on in its next run", until=to_datetime(moment_ms))
                return


def audited_until(checkpoint: Mapping[str, Any] | None, now_ms: int, retention_days: int) -> int:
    """Up to which moment slots are audited: at first a day back, and never beyond what is kept of results."""
    done_ms: int = checkpoint["audited_until_ms"] if checkpoint else now_ms - FIRST_LOOK_MS
    today_ms = now_ms - now_ms % _DAY_MS
    oldest_ms = today_ms - retention_days * _DAY_MS + LONGEST_SETTLING_MS + STEP_MS
    return min(max(done_ms, oldest_ms), now_ms)


def audit_steps(done_ms: int, now_ms: int) -> Iterator[tuple[int, int]]:
    """Moments at which to look back, and how far, so that all since ``done_ms`` is seen; the last one is now."""
    while now_ms - done_ms > STEP_MS:
        done_ms += STEP_MS
        yield done_ms, STEP_MS
    yield now_ms, max(LENGTH_MS, now_ms - done_ms)


async def account(session: AsyncSession, books: Books, reasons: Mapping[str, MissedReason]) -> None:
    """Store the unaccounted slots as missed; ``reasons`` by region, else ``scheduler_gap``.

    A result that arrives after all replaces the record.
    """
    if not books.unaccounted:
        return
    await ensure_partitions(session, {to_datetime(key.slot_ms).date() for key in books.unaccounted})
    for start in range(0, len(books.unaccounted), _BATCH):
        chunk = books.unaccounted[start : start + _BATCH]
        await store_results(session, [row_of(_record(key, reasons)) for key in chunk])
    log.error(
        "slots were lost without a record and are stored as missed",
        slots=len(books.unaccounted),
        first=books.unaccounted[0].message_id,
        last=books.unaccounted[-1].message_id,
    )


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
