"""A batch of results becomes rows, states and incidents in one transaction.

Delivery is at least once, so everything here may happen twice: the unique key of a slot lets a result in once,
and a state moves only with a result that was let in, under a lock on the monitor's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import detail_of, document_of, encode
from shared.contracts.wire import ResultMessage
from shared.db.repositories.results import ResultRow, store_results
from shared.db.repositories.state import StateRow, lock_states, save_states, write_turns
from shared.db.repositories.suspicion import Glances, write_beats
from shared.domain import state as machine
from shared.domain.clock import to_datetime
from shared.domain.errors import ErrorKind
from shared.domain.mass_failure import beat_of, sees_the_world
from shared.domain.result import ResultStatus, SlotKey
from shared.domain.state import Judged, MonitorState, MonitorStatus
from shared.services.incident_ledger import Course
from shared.services.incidents import settle

AHEAD_MS = 300_000
"""A slot further in the future comes from a clock that is wrong: it would silence the results of all that time."""


async def record(session: AsyncSession, messages: Sequence[ResultMessage], now_ms: int) -> int:
    """Store results and apply them to their monitors' states and incidents; answers how many were new.

    The caller owns the transaction. Results of monitors that are gone are skipped.
    """
    chosen = one_per_slot(messages)
    written = await store_results(session, [row_of(message) for message in chosen.values()])
    judged = [chosen[key] for key in written if _is_evidence(chosen[key], now_ms)]
    if judged:
        rows = await lock_states(session, {message.monitor_id for message in judged})
        await _apply(session, rows, judged, now_ms)
    return len(written)


async def _apply(
    session: AsyncSession, rows: Mapping[UUID, StateRow], judged: Sequence[ResultMessage], now_ms: int
) -> None:
    courses, sight = advance(rows, judged)
    if not courses:
        return
    turns = await settle(session, courses, now_ms, trust=sight.trusts)
    await save_states(session, [_with_result(course) for course in courses])
    if turns:
        await write_turns(session, turns)
    if glances := sight.glances():
        await write_beats(session, glances, now_ms)


def _is_evidence(message: ResultMessage, now_ms: int) -> bool:
    """Whether a result says something about the target: a slot that was not run and our own faults do not."""
    verdict = message.verdict
    if verdict.status is ResultStatus.MISSED or message.slot_ms > now_ms + AHEAD_MS:
        return False
    return verdict.error is None or verdict.error.kind is not ErrorKind.INTERNAL_ERROR


def one_per_slot(messages: Iterable[ResultMessage]) -> dict[SlotKey, ResultMessage]:
    """One message per slot: a verdict before a record of a missed slot, else the first to arrive."""
    found: dict[SlotKey, ResultMessage] = {}
    for message in messages:
        known = found.get(message.key)
        if known is None or known.verdict.status is ResultStatus.MISSED:
            found[message.key] = message
    return found


def advance(rows: Mapping[UUID, StateRow], judged: Iterable[ResultMessage]) -> tuple[list[Course], Sight]:
    """The monitors whose states change, after all results in the order of their slots, and what workers saw.

    A result of another revision never judges the present one, and a paused monitor keeps its state.
    """
    courses: dict[UUID, Course] = {}
    sight = Sight()
    for message in sorted(judged, key=lambda message: message.slot_ms):
        row = rows.get(message.monitor_id)
        if row is None or message.revision != row.revision or row.state.overlay is MonitorStatus.PAUSED:
            continue
        course = courses.get(message.monitor_id) or Course(row, row.state)
        before = course.state
        judgement = Judged(message.slot_ms, message.verdict.status, message.region)
        after = machine.apply(before, judgement, row.rules)
        if after is before:
            continue
        courses[message.monitor_id] = course
        _follow(course, after, message)
        sight.add(message, before, after)
    return list(courses.values()), sight


def _follow(course: Course, after: MonitorState, message: ResultMessage) -> None:
    if after.status is not course.state.status:
        course.moments.append((after, message))
    course.state, course.newest = after, message
    if message.verdict.status is ResultStatus.DOWN:
        course.down = message
    elif message.verdict.status is ResultStatus.DEGRADED:
        course.degraded = message


def _with_result(course: Course) -> StateRow:
    assert course.newest is not None
    return replace(course.row, state=course.state, last_result=encode(document_of(course.newest)))


@dataclass(frozen=True, slots=True)
class Glance:
    """One look of a worker at a target: it turned from well to failing, was found well, or fails as before."""

    started_at_ms: int
    has_turned: bool
    is_well: bool


class Sight:
    """What the workers of a batch saw, as evidence for or against themselves."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[Glance]] = {}

    def add(self, message: ResultMessage, before: MonitorState, after: MonitorState) -> None:
        """Note a result."""
        if not message.worker or message.started_at_ms is None:
            return
        known = before.regions.get(message.region)
        is_down = after.regions[message.region].status is MonitorStatus.DOWN
        has_turned = is_down and (known is None or known.status is not MonitorStatus.DOWN)
        is_well = not has_turned and message.verdict.status is not ResultStatus.DOWN
        glance = Glance(message.started_at_ms, has_turned, is_well)
        self._seen.setdefault((message.worker, message.region), []).append(glance)

    def trusts(self, message: ResultMessage) -> bool:
        """Whether this worker found more well than it saw turn since it began this check."""
        started = message.started_at_ms
        if not message.worker or started is None:
            return True
        seen = self._seen.get((message.worker, message.region), [])
        since = [glance for glance in seen if glance.started_at_ms >= started]
        return sees_the_world(sum(each.has_turned for each in since), sum(each.is_well for each in since))

    def glances(self) -> Glances:
        """Per worker, region and beat: how many turned, were well, and fail as before."""
        found: Glances = {}
        for (worker, region), seen in self._seen.items():
            for glance in seen:
                place = (worker, region, beat_of(glance.started_at_ms))
                turned, well, failing = found.get(place, (0, 0, 0))
                fails_on = not glance.has_turned and not glance.is_well
                found[place] = (turned + glance.has_turned, well + glance.is_well, failing + fails_on)
        return found


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
