"""The incidents of a batch of results while they are being written: which steps each monitor's way asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import ResultDocument, document_of, encode
from shared.contracts.wire import ResultMessage
from shared.db.base import new_id
from shared.db.repositories import incidents as repository
from shared.db.repositories.state import StateRow
from shared.domain import incident as machine
from shared.domain.clock import to_milliseconds
from shared.domain.dependency import LONGEST_HOLD_MS
from shared.domain.errors import CheckError
from shared.domain.incident import Event, Failure, Incident, Severity, Step, steps
from shared.domain.mass_failure import HOLD_MS
from shared.domain.result import ResultStatus
from shared.domain.state import MonitorState, MonitorStatus

Span = tuple[int, int]
Trust = Callable[[ResultMessage], bool]
"""Whether the worker of a failing result is known to see the world, so that nobody has to wait for proof."""


@dataclass(slots=True)
class Course:
    """What a monitor went through in one batch: the states it turned to with the results that turned it."""

    row: StateRow
    state: MonitorState
    moments: list[tuple[MonitorState, ResultMessage]] = field(default_factory=list)
    newest: ResultMessage | None = None
    down: ResultMessage | None = None
    degraded: ResultMessage | None = None

    @property
    def needs_steps(self) -> bool:
        announced = self.state.announced
        return any(steps(state.status, announced) for state, _ in self.moments) or bool(
            steps(self.state.status, announced)
        )

    @property
    def has_failed_again(self) -> bool:
        return self.state.announced is not MonitorStatus.UP and (self.down or self.degraded) is not None


class Ledger:
    """The incidents of a batch while they are being written."""

    def __init__(
        self, latest: Mapping[UUID, Incident], last_failures: Mapping[UUID, Failure], now_ms: int, trust: Trust
    ) -> None:
        self._latest, self._last_failures = dict(latest), last_failures
        self._now_ms, self._trust = now_ms, trust
        self._changed: dict[UUID, Incident] = {}
        self._events: list[Event] = []

    def follow(self, course: Course, spans: Sequence[Span]) -> None:
        """Take each step that was due on the way, then those that the present truth asks for."""
        for state, message in course.moments:
            if not _is_within(spans, message.slot_ms, self._now_ms):
                self._catch_up(course, state, message)
        if course.state.overlay is None:
            self._catch_up(course, course.state, course.down or course.degraded or course.newest)
        self._note_failure(course)

    def _catch_up(self, course: Course, truth: MonitorState, message: ResultMessage | None) -> None:
        for step in steps(truth.status, course.state.announced):
            incident = self._latest.get(course.row.monitor_id)
            if step is Step.RESOLVE:
                if incident and incident.is_open:
                    self._put(*machine.resolved(incident, truth.status_since_ms, self._now_ms))
            elif step is Step.RAISE and incident and incident.is_open:
                self._put(*machine.raised(incident, self._failure(course, message), self._now_ms))
            else:
                self._open(course, truth, message)
        if truth.status in _ANNOUNCED:
            course.state = replace(course.state, announced=truth.status)

    def _open(self, course: Course, truth: MonitorState, message: ResultMessage | None) -> None:
        row, known = course.row, self._latest.get(course.row.monitor_id)
        failure = self._failure(course, message)
        severity = Severity(truth.status.value)
        hold_ms = self._hold_ms(row, message)
        if known and machine.may_reopen(known, severity, truth.status_since_ms, row.flap_window_ms):
            self._put(*machine.reopened(known, failure, self._now_ms, hold_ms))
            return
        incident = Incident(
            id=new_id(),
            organisation_id=row.organisation_id,
            monitor_id=row.monitor_id,
            severity=severity,
            cause=failure.cause,
            message=failure.message,
            started_at_ms=truth.status_since_ms,
            opened_at_ms=self._now_ms,
            last_failure_at_ms=failure.started_at_ms,
            alert_not_before_ms=self._now_ms + (hold_ms or 0),
            silent=hold_ms is not None,
            held=hold_ms is not None,
            worker=failure.worker,
            region=failure.region,
            expiry_warning=failure.expiry_warning,
            first_result=failure.document,
            last_result=failure.document,
        )
        self._put(incident, machine.opened(incident))

    def _hold_ms(self, row: StateRow, message: ResultMessage | None) -> int | None:
        """How long the sweep may take to find out whom to blame; None when there is nothing to find out."""
        if row.has_parents:
            return LONGEST_HOLD_MS
        return HOLD_MS if message is not None and not self._trust(message) else None

    def _note_failure(self, course: Course) -> None:
        """Keep the newest evidence; what explained this failure may be over, and then people are told."""
        incident = self._latest.get(course.row.monitor_id)
        if incident is None or not incident.is_open:
            return
        message = course.down or (course.degraded if incident.severity is Severity.DEGRADED else None)
        if message is None:
            return
        failure = failure_of(message)
        if machine.is_nearer(incident, failure) and not incident.silent and course.state.overlay is None:
            self._put(*machine.warned(incident, failure, self._now_ms))
            return
        incident = machine.failed_again(incident, failure)
        self._put(incident)
        if incident.explained_until_ms is not None and failure.started_at_ms > incident.explained_until_ms:
            self._put(*machine.released(incident, self._now_ms))

    def _failure(self, course: Course, message: ResultMessage | None) -> Failure:
        if message:
            return failure_of(message)
        return self._last_failures.get(course.row.monitor_id) or _failure_without_result(course.state)

    def _put(self, incident: Incident, events: Event | list[Event] | None = None) -> None:
        assert incident.monitor_id is not None
        self._latest[incident.monitor_id] = self._changed[incident.id] = incident
        if events:
            self._events.extend([events] if isinstance(events, Event) else events)

    async def write(self, session: AsyncSession) -> None:
        if self._changed:
            await repository.save(session, list(self._changed.values()))
        if self._events:
            await repository.write_events(session, self._events)


_ANNOUNCED = frozenset({MonitorStatus.UP, MonitorStatus.DEGRADED, MonitorStatus.DOWN})


def failure_of(message: ResultMessage) -> Failure:
    """What an incident keeps of the result that decided."""
    started = message.slot_ms if message.started_at_ms is None else message.started_at_ms
    cause, text = _cause(message.verdict.status, message.verdict.error)
    warning = message.verdict.tls.expiry_warning if message.verdict.tls else None
    return Failure(cause, text, message.worker, message.region, started, encode(document_of(message)), warning)


_document = msgspec.json.Decoder(ResultDocument)


def failure_in(document: str) -> Failure:
    result = _document.decode(document)
    cause, text = _cause(result.status, result.error)
    started = to_milliseconds(result.started_at or result.scheduled_at)
    return Failure(cause, text, "", result.region, started, document)


def _failure_without_result(state: MonitorState) -> Failure:
    status = state.status.value
    return Failure(status, f"the monitor is {status}", "", "", state.status_since_ms, None)


def _cause(status: ResultStatus, error: CheckError | None) -> tuple[str, str]:
    if error is None:
        return status.value, f"the check is {status.value}"
    return error.kind.value, error.message.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _is_within(spans: Sequence[Span], *moments: int) -> bool:
    return any(start <= moment < end for start, end in spans for moment in moments)
