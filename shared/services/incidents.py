"""Makes incidents agree with the truth about monitors, in the transaction that finds it.

What is done depends only on where a monitor stands and on what was announced of it, so it may be looked at any
number of times. Inside a maintenance window nothing is announced; at its end truth and announcement are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.repositories import incidents as repository
from shared.db.repositories.maintenance import spans_of
from shared.db.repositories.state import (
    StateRow,
    Turn,
    close_history,
    last_results,
    lock_states,
    save_states,
    write_turns,
)
from shared.domain import incident as machine
from shared.domain import state as states
from shared.domain.clock import to_datetime
from shared.domain.incident import Failure
from shared.domain.state import MonitorState, MonitorStatus
from shared.services.incident_ledger import Course, Ledger, Span, Trust, failure_in

Shown = tuple[MonitorStatus, int]
"""A status and since when it is shown, in milliseconds."""


async def reconsider(session: AsyncSession, monitor_ids: Collection[UUID], now_ms: int) -> None:
    """Judge monitors without a new result: a maintenance window began or ended, was shortened or deleted."""
    rows = await lock_states(session, monitor_ids)
    courses = [Course(row, row.state) for row in rows.values() if row.state.overlay is not MonitorStatus.PAUSED]
    turns = await settle(session, courses, now_ms, trust=_nobody_to_blame, look_at=courses)
    changed = [
        replace(course.row, state=course.state) for course in courses if course.state is not course.row.state
    ]
    if changed:
        await save_states(session, changed)
    if turns:
        await write_turns(session, turns)


async def forget_counts(session: AsyncSession, monitor_id: UUID) -> None:
    """Count anew for a check that changed."""
    rows = await lock_states(session, [monitor_id])
    await save_states(session, [replace(row, state=states.forget_counts(row.state)) for row in rows.values()])


async def pause(session: AsyncSession, monitor_id: UUID, now_ms: int) -> None:
    """Judge a monitor no more; its incident ends, and people hear that nobody looks any longer."""
    row = await _dismiss(session, monitor_id, now_ms, MonitorStatus.PAUSED.value)
    since_ms = max(now_ms, row.state.status_since_ms)
    state = replace(row.state, overlay=MonitorStatus.PAUSED, overlay_since_ms=since_ms)
    await _show(session, row, state, now_ms)


async def resume(session: AsyncSession, monitor_id: UUID, now_ms: int) -> None:
    """Begin anew: what was known before the pause says nothing about now."""
    row = (await lock_states(session, [monitor_id]))[monitor_id]
    spans = await spans_of(session, [monitor_id], now_ms, now_ms + 1)
    state = MonitorState(status_since_ms=now_ms)
    overlay, since_ms = _overlay(state, spans.get(monitor_id, []), now_ms)
    if overlay:
        state = replace(state, overlay=overlay, overlay_since_ms=since_ms)
    await _show(session, row, state, now_ms)


async def close(session: AsyncSession, monitor_id: UUID, now_ms: int) -> None:
    """End the incident and the history of a monitor that is being deleted."""
    await _dismiss(session, monitor_id, now_ms, "deleted")
    await close_history(session, monitor_id, to_datetime(now_ms))


async def _show(session: AsyncSession, row: StateRow, state: MonitorState, now_ms: int) -> None:
    await save_states(session, [replace(row, state=state)])
    await write_turns(session, [Turn(row.organisation_id, row.monitor_id, state.shown, now_ms)])


async def _dismiss(session: AsyncSession, monitor_id: UUID, now_ms: int, why: str) -> StateRow:
    row = (await lock_states(session, [monitor_id]))[monitor_id]
    incident = (await repository.latest(session, [monitor_id])).get(monitor_id)
    if incident and incident.is_open:
        ended, event = machine.resolved(incident, now_ms, now_ms, why)
        await repository.save(session, [ended])
        await repository.write_events(session, [event])
    return row


async def settle(
    session: AsyncSession,
    courses: Sequence[Course],
    now_ms: int,
    *,
    trust: Trust,
    look_at: Sequence[Course] | None = None,
) -> list[Turn]:
    """Take the steps that these monitors ask for and answer how their histories go on.

    The caller holds the locks on the states and saves them: ``announced`` and the overlay in ``state`` may change.
    """
    asking = look_at or [
        course for course in courses if course.needs_steps or course.state.overlay is MonitorStatus.MAINTENANCE
    ]
    spans = await _maintenance(session, asking, now_ms)
    turns = [turn for course in courses for turn in _history(course, spans.get(course.row.monitor_id, []), now_ms)]
    concerned = [course for course in courses if course.needs_steps or course.has_failed_again]
    if concerned:
        ids = [course.row.monitor_id for course in concerned]
        latest, failures = await repository.latest(session, ids), await _last_failures(session, concerned)
        ledger = Ledger(latest, failures, now_ms, trust)
        for course in concerned:
            ledger.follow(course, spans.get(course.row.monitor_id, []))
        await ledger.write(session)
    return turns


async def _maintenance(session: AsyncSession, courses: Sequence[Course], now_ms: int) -> Mapping[UUID, list[Span]]:
    if not courses:
        return {}
    since = min(_earliest(course, now_ms) for course in courses)
    return await spans_of(session, [course.row.monitor_id for course in courses], since, now_ms + 1)


def _earliest(course: Course, now_ms: int) -> int:
    slots = [message.slot_ms for _, message in course.moments]
    return min([now_ms, *slots, course.state.overlay_since_ms or now_ms])


def _history(course: Course, spans: Sequence[Span], now_ms: int) -> list[Turn]:
    """Lay the maintenance of this moment over the state, and tell what is shown from when on."""
    before = course.state
    turned = [(state.status, state.status_since_ms) for state, _ in course.moments]
    overlay, at_ms = _overlay(before, spans, now_ms)
    if overlay is not before.overlay:
        since_ms = at_ms if overlay else None
        course.state = replace(before, overlay=overlay, overlay_since_ms=since_ms)
        turned = _covered(turned, overlay, at_ms) if overlay else _uncovered(turned, course.row.state.status, at_ms)
    elif overlay:
        turned = []
    return [Turn(course.row.organisation_id, course.row.monitor_id, *turn) for turn in turned]


def _covered(turned: Sequence[Shown], overlay: MonitorStatus, at_ms: int) -> list[Shown]:
    """What is shown when something lies over the rest from a moment on."""
    return [*(turn for turn in turned if turn[1] < at_ms), (overlay, at_ms)]


def _uncovered(turned: Sequence[Shown], status: MonitorStatus, at_ms: int) -> list[Shown]:
    """What is shown when nothing lies over a status, and over what it turned to, from a moment on."""
    below = [(status, at_ms), *turned]
    first = max(place for place, (_, since_ms) in enumerate(below) if since_ms <= at_ms)
    return [(below[first][0], at_ms), *below[first + 1 :]]


def _overlay(state: MonitorState, spans: Sequence[Span], now_ms: int) -> tuple[MonitorStatus | None, int]:
    """What lies over the state now, and since when; or since when it no longer does."""
    if state.overlay is MonitorStatus.PAUSED:
        return state.overlay, now_ms
    for start, end in spans:
        if start <= now_ms < end:
            return MonitorStatus.MAINTENANCE, start
    return None, max((end for _, end in spans if end <= now_ms), default=now_ms)


async def _last_failures(session: AsyncSession, courses: Iterable[Course]) -> dict[UUID, Failure]:
    """The last result of monitors that are to be judged without a new one."""
    ids = [course.row.monitor_id for course in courses if course.newest is None]
    found = await last_results(session, ids) if ids else {}
    return {monitor_id: failure_in(document) for monitor_id, document in found.items()}


def _nobody_to_blame(_: ResultMessage) -> bool:
    return True
