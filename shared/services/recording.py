"""A batch of results becomes rows and states in one transaction.

Delivery is at least once, so everything here may happen twice: the unique key of a slot lets a result in once,
and a state moves only with a result that was let in, under a lock on the monitor's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import detail_of, document_of, encode
from shared.contracts.wire import ResultMessage
from shared.db.repositories.results import ResultRow, store_results
from shared.db.repositories.state import StateRow, lock_states, save_states
from shared.domain import state as machine
from shared.domain.clock import to_datetime
from shared.domain.result import ResultStatus, SlotKey
from shared.domain.state import Judged


async def record(session: AsyncSession, messages: Sequence[ResultMessage]) -> int:
    """Store results and apply them to their monitors' states; answers how many were new.

    The caller owns the transaction. Results of monitors that are gone are skipped.
    """
    chosen = one_per_slot(messages)
    written = await store_results(session, [row_of(message) for message in chosen.values()])
    judged = [chosen[key] for key in written if chosen[key].verdict.status is not ResultStatus.MISSED]
    if judged:
        rows = await lock_states(session, {message.monitor_id for message in judged})
        if updates := advance(rows, judged):
            await save_states(session, updates)
    return len(written)


def one_per_slot(messages: Iterable[ResultMessage]) -> dict[SlotKey, ResultMessage]:
    """One message per slot: a verdict before a record of a missed slot, else the first to arrive."""
    found: dict[SlotKey, ResultMessage] = {}
    for message in messages:
        known = found.get(message.key)
        if known is None or known.verdict.status is ResultStatus.MISSED:
            found[message.key] = message
    return found


def advance(rows: Mapping[UUID, StateRow], judged: Iterable[ResultMessage]) -> list[StateRow]:
    """The rows that change, after all results in the order of their slots.

    A result of another revision never judges the present one, and a paused monitor keeps its state.
    """
    states = {monitor_id: row.state for monitor_id, row in rows.items() if not row.paused}
    newest: dict[UUID, ResultMessage] = {}
    for message in sorted(judged, key=lambda message: message.slot_ms):
        monitor_id = message.monitor_id
        if monitor_id not in states or message.revision != rows[monitor_id].revision:
            continue
        judgement = Judged(message.slot_ms, message.verdict.status)
        after = machine.apply(states[monitor_id], judgement, rows[monitor_id].thresholds)
        if after is not states[monitor_id]:
            states[monitor_id], newest[monitor_id] = after, message
    return [rows[key].advanced(states[key], encode(document_of(message))) for key, message in newest.items()]


def row_of(message: ResultMessage) -> ResultRow:
    """The stored form of a result; NUL has no place in PostgreSQL's text."""
    verdict = message.verdict
    return ResultRow(
        monitor_id=message.monitor_id,
        region=message.region,
        scheduled_at=to_datetime(message.slot_ms),
        started_at=None if message.started_at_ms is None else to_datetime(message.started_at_ms),
        revision=message.revision,
        status=verdict.status.value,
        attempts=verdict.attempts,
        error_kind=verdict.error.kind.value if verdict.error else None,
        error_message=verdict.error.message.replace("\0", "\N{REPLACEMENT CHARACTER}") if verdict.error else None,
        total_ms=None if message.started_at_ms is None else verdict.timings_ms.total,
        trigger=message.trigger,
        detail=encode(detail_of(verdict)),
    )
