"""Heartbeat monitors: their tokens, and the judging of their pings.

A verdict becomes a result like any other, in the transaction that takes the pings and moves the deadline: it is
there exactly once, whoever judges and whatever crashes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from hashlib import sha256
from uuid import UUID

import msgspec
import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.sealing import Sealer
from shared.contracts.wire import ResultMessage
from shared.db.errors import is_missing_partition
from shared.db.models import Monitor
from shared.db.repositories import heartbeats
from shared.db.repositories.heartbeats import HeartbeatRow
from shared.db.repositories.results import ensure_partitions
from shared.db.repositories.state import Turn, lock_states, save_states, write_turns
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime
from shared.domain.heartbeat import HeartbeatCheck
from shared.domain.heartbeat_rules import (
    SETTLE_MS,
    HeartbeatState,
    Judgement,
    Reception,
    evaluate,
    first_state,
    next_deadline_ms,
)
from shared.domain.result import ResultStatus
from shared.domain.state import MonitorState, MonitorStatus
from shared.services.recording import record

log = structlog.get_logger(__name__)

KIND = "heartbeat"
UNKNOWN = MonitorStatus.UNKNOWN
EVERY_SECONDS = 0.5
TIDY_SECONDS = 3600.0
KEPT = timedelta(days=30)
_BATCH = 500
_PINGS = 5000
_REASON_CHARACTERS = 300


_states = msgspec.json.Decoder(HeartbeatState)


def token_hash(token: str) -> bytes:
    """What a token is looked up by: equal work for known and unknown ones, and no token in any index."""
    return sha256(token.encode()).digest()


async def begin(session: AsyncSession, monitor: Monitor, sealer: Sealer, now_ms: int) -> None:
    """Expect pings from now on; the first time the monitor gets its token."""
    spec = HeartbeatCheck.model_validate(monitor.check_spec)
    state = first_state(spec, now_ms)
    deadline = next_deadline_ms(spec, state)
    token = secrets.token_urlsafe(24)
    await heartbeats.begin(
        session,
        monitor.id,
        monitor.organisation_id,
        token_hash=token_hash(token),
        token=sealer.encrypt(token.encode()).decode(),
        state=_encoded(state),
        deadline=None if deadline is None else to_datetime(deadline),
    )


class HeartbeatJudge:
    """Judges what was received, and what was not; any number of processes may run one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._tidied_at: float | None = None
        self._days: set[date] = set()
        self._unreadable: set[UUID] = set()
        self.last_success = clock.monotonic()

    async def run(self) -> None:
        """Judge twice a second until cancelled; what fails is done by the next round."""
        while True:
            is_full = False
            try:
                is_full = await self.judge_once() == _BATCH
                await self._tidy()
                self.last_success = self._clock.monotonic()
            except (SQLAlchemyError, OSError) as error:
                log.warning("heartbeats could not be judged", error=str(error).partition("\n")[0])
            if not is_full:
                await asyncio.sleep(EVERY_SECONDS)

    async def judge_once(self) -> int:
        """Judge one batch; answers how many heartbeats were looked at."""
        try:
            async with self._database.system() as session:
                return await self._judge(session)
        except SQLAlchemyError as error:
            if not is_missing_partition(error) or not await self._make_room():
                raise
            return _BATCH

    async def _judge(self, session: AsyncSession) -> int:
        now_ms = self._clock.now_ms()
        rows = await heartbeats.take(session, to_datetime(now_ms), limit=_BATCH, pings=_PINGS)
        cases, unreadable = self._read(rows)
        results = await _evaluate(session, cases, now_ms) if cases else []
        if results:
            self._days = {to_datetime(result.slot_ms).date() for result in results}
            await record(session, results, now_ms)
        newest = {result.monitor_id: result for result in results}
        blind = {key: each.slot_ms for key, each in newest.items() if each.verdict.status is ResultStatus.MISSED}
        await _mark_unknown(session, blind | dict.fromkeys(unreadable, now_ms))
        return len(cases)

    def _read(self, rows: Sequence[HeartbeatRow]) -> tuple[list[_Case], set[UUID]]:
        """Those that can be read, and the others: they keep their pings, and must not hold up anybody."""
        cases, unreadable = [], set()
        for row in rows:
            try:
                spec = None if row.paused else HeartbeatCheck.model_validate_json(row.check_spec)
                cases.append(_Case(row, _states.decode(row.state), spec))
            except (ValidationError, msgspec.DecodeError) as error:
                unreadable.add(row.monitor_id)
                if row.monitor_id not in self._unreadable:
                    reason = " ".join(str(error).split())[:_REASON_CHARACTERS]
                    log.error("a heartbeat can't be read", monitor=str(row.monitor_id), reason=reason)
        self._unreadable = unreadable
        return cases, unreadable

    async def _make_room(self) -> bool:
        """Create missing days: pings may wait, and deadlines lie, further back than partitions are made ready."""
        async with self._database.system() as session:
            return await ensure_partitions(session, self._days) > 0

    async def _tidy(self) -> None:
        now = self._clock.monotonic()
        if self._tidied_at is None or now - self._tidied_at >= TIDY_SECONDS:
            async with self._database.system() as session:
                await heartbeats.forget(session, to_datetime(self._clock.now_ms()) - KEPT)
            self._tidied_at = now


@dataclass(frozen=True, slots=True)
class _Case:
    """A heartbeat that is judged; ``spec`` is null while nothing is expected of it."""

    row: HeartbeatRow
    state: HeartbeatState
    spec: HeartbeatCheck | None


async def _evaluate(session: AsyncSession, cases: Sequence[_Case], now_ms: int) -> list[ResultMessage]:
    """Take the pings of locked heartbeats, move their deadlines, and answer the verdicts."""
    pings = await heartbeats.take_pings(session, [case.row.monitor_id for case in cases])
    since = min(_looks_back_to(case.state, now_ms) for case in cases)
    reception = Reception(tuple(await heartbeats.received_since(session, to_datetime(since))))
    saved, results = [], []
    for case in cases:
        row, state, deadline = case.row, case.state, None
        if case.spec is not None:
            state, found = evaluate(case.spec, state, pings.get(row.monitor_id, []), now_ms, reception)
            deadline = next_deadline_ms(case.spec, state)
            results += [_result(row, judgement) for judgement in found]
        saved.append((row.monitor_id, _encoded(state), None if deadline is None else to_datetime(deadline)))
    await heartbeats.save(session, saved)
    return results


def _encoded(state: HeartbeatState) -> str:
    return msgspec.json.encode(state).decode()


def _looks_back_to(state: HeartbeatState, now_ms: int) -> int:
    """From when on it matters whether pings could be received, and when a receiver gave its last sign."""
    expected = now_ms if state.expected_ms is None else state.expected_ms
    return min((now_ms, expected, *(run.started_ms for run in state.runs))) - SETTLE_MS


def _result(row: HeartbeatRow, judgement: Judgement) -> ResultMessage:
    return ResultMessage(
        monitor_id=row.monitor_id,
        revision=row.revision,
        region=row.region,
        slot_ms=judgement.slot_ms,
        started_at_ms=judgement.started_ms,
        verdict=judgement.verdict,
    )


async def _mark_unknown(session: AsyncSession, since_ms: Mapping[UUID, int]) -> None:
    """Turn monitors unknown from a moment on: nobody can say how they are. Incidents stay as they are."""
    if not since_ms:
        return
    rows = [row for row in (await lock_states(session, since_ms)).values() if row.state.status is not UNKNOWN]
    unknown = [replace(row, state=_unknown(row.state, since_ms[row.monitor_id])) for row in rows]
    await save_states(session, unknown)
    shown = [row for row in unknown if row.state.overlay is None]
    await write_turns(
        session,
        [Turn(row.organisation_id, row.monitor_id, UNKNOWN, row.state.status_since_ms) for row in shown],
    )


def _unknown(state: MonitorState, since_ms: int) -> MonitorState:
    return replace(state, status=UNKNOWN, status_since_ms=max(since_ms, state.status_since_ms))
