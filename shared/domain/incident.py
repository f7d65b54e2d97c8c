"""Incidents: what a state makes of them, and each step of their life. Pure; times are milliseconds since 1970.

An incident belongs to one time in which a monitor was not well. It is opened, may be acknowledged and re-opened,
and ends resolved; each step leaves an event, and an event that people are to hear of names the transition it tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from shared.domain.state import MonitorStatus

DEFAULT_FLAP_WINDOW_SECONDS = 300


class IncidentKind(StrEnum):
    """Of a monitor, or of the platform itself: a worker or a region that sees everything fail."""

    MONITOR = "monitor"
    PLATFORM = "platform"


class IncidentState(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Severity(StrEnum):
    DEGRADED = "degraded"
    DOWN = "down"


class Transition(StrEnum):
    """What people are told of."""

    OPENED = "opened"
    REOPENED = "reopened"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class EventKind(StrEnum):
    OPENED = "opened"
    REOPENED = "reopened"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    COMMENT = "comment"
    DELIVERY = "delivery"
    AFFECTED = "affected"
    RELEASED = "released"


class Step(StrEnum):
    """What a change of a monitor's status asks for."""

    OPEN = "open"
    RAISE = "raise"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True)
class Failure:
    """The deciding attempt. ``cause`` is an error kind, ``document`` the result as JSON text, if there is one."""

    cause: str
    message: str
    worker: str
    region: str
    started_at_ms: int
    document: str | None
    expiry_warning: int | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """``resolved_by`` is null when the monitor recovered. ``held``: whether anybody is told is still being judged.

    ``expiry_warning`` is the number of days before the end of a certificate that was told last.
    ``explained_until_ms`` is when the incident behind ``affected_by`` ended, null while it is open.
    """

    id: UUID
    organisation_id: UUID
    monitor_id: UUID | None
    severity: Severity
    cause: str
    message: str
    started_at_ms: int
    opened_at_ms: int
    last_failure_at_ms: int
    kind: IncidentKind = IncidentKind.MONITOR
    state: IncidentState = IncidentState.OPEN
    acknowledged_at_ms: int | None = None
    acknowledged_by: str | None = None
    resolved_at_ms: int | None = None
    resolved_by: str | None = None
    reopened: int = 0
    affected_by: UUID | None = None
    alert_not_before_ms: int | None = None
    silent: bool = False
    held: bool = False
    worker: str = ""
    region: str = ""
    expiry_warning: int | None = None
    first_result: str | None = None
    last_result: str | None = None
    explained_until_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self.state is not IncidentState.RESOLVED


@dataclass(frozen=True, slots=True)
class Event:
    """One line of an incident's timeline; ``tell`` names the transition that people are to hear of, if any."""

    incident_id: UUID
    organisation_id: UUID
    at_ms: int
    kind: EventKind
    actor: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
    tell: Transition | None = None


Told = tuple[Incident, Event]


def steps(status: MonitorStatus, announced: MonitorStatus) -> tuple[Step, ...]:
    """What is to be done when this is the truth and that was announced; pending and unknown ask for nothing.

    An incident of severity down is over when the monitor is no longer down; being slow then is one of its own.
    """
    if status is announced:
        return ()
    match status, announced:
        case MonitorStatus.UP, _:
            return (Step.RESOLVE,)
        case MonitorStatus.DOWN | MonitorStatus.DEGRADED, MonitorStatus.UP:
            return (Step.OPEN,)
        case MonitorStatus.DOWN, MonitorStatus.DEGRADED:
            return (Step.RAISE,)
        case MonitorStatus.DEGRADED, MonitorStatus.DOWN:
            return (Step.RESOLVE, Step.OPEN)
    return ()


def opened(incident: Incident) -> Event:
    """The event of a new incident."""
    detail = {"severity": incident.severity.value, "cause": incident.cause, "message": incident.message}
    return _event(incident, incident.opened_at_ms, EventKind.OPENED, detail, tell=Transition.OPENED)


def may_reopen(incident: Incident, severity: Severity, started_at_ms: int, flap_window_ms: int) -> bool:
    """Whether a new failure continues this one: it recovered within the window before, and people knew of it."""
    if incident.is_open or incident.silent or incident.resolved_by is not None or incident.severity is not severity:
        return False
    assert incident.resolved_at_ms is not None
    return started_at_ms - incident.resolved_at_ms < flap_window_ms


def reopened(incident: Incident, failure: Failure, now_ms: int, hold_ms: int | None = None) -> Told:
    """The same incident once more; who had acknowledged it hears of it again. With a hold that waits."""
    is_held = hold_ms is not None
    after = replace(
        incident,
        state=IncidentState.OPEN,
        silent=is_held,
        held=is_held,
        alert_not_before_ms=now_ms + (hold_ms or 0),
        worker=failure.worker,
        region=failure.region,
        opened_at_ms=now_ms,
        resolved_at_ms=None,
        acknowledged_at_ms=None,
        acknowledged_by=None,
        reopened=incident.reopened + 1,
        cause=failure.cause,
        message=failure.message,
        expiry_warning=failure.expiry_warning,
        last_failure_at_ms=failure.started_at_ms,
        last_result=failure.document,
    )
    detail = {"cause": failure.cause, "message": failure.message}
    return after, _event(after, now_ms, EventKind.REOPENED, detail, tell=Transition.REOPENED)


def raised(incident: Incident, failure: Failure, now_ms: int) -> Told:
    """A degraded monitor went down: told as opened, because now somebody may have to get up for it."""
    after = replace(
        failed_again(incident, failure),
        state=IncidentState.OPEN,
        acknowledged_at_ms=None,
        acknowledged_by=None,
        severity=Severity.DOWN,
        cause=failure.cause,
        message=failure.message,
    )
    return after, opened(replace(after, opened_at_ms=now_ms))


def is_nearer(incident: Incident, failure: Failure) -> bool:
    """Whether a certificate has come nearer to its end than was told, by one of the steps that are to be told."""
    told, now = incident.expiry_warning, failure.expiry_warning
    return incident.severity is Severity.DEGRADED and now is not None and (told is None or now < told)


def warned(incident: Incident, failure: Failure, now_ms: int) -> Told:
    """The same trouble, and less time: told as opened once more."""
    after = replace(
        failed_again(incident, failure),
        cause=failure.cause,
        message=failure.message,
        expiry_warning=failure.expiry_warning,
    )
    return after, opened(replace(after, opened_at_ms=now_ms))


def failed_again(incident: Incident, failure: Failure) -> Incident:
    """One more failure of an incident that is open."""
    return replace(
        incident,
        last_failure_at_ms=max(failure.started_at_ms, incident.last_failure_at_ms),
        last_result=failure.document,
    )


def resolved(incident: Incident, at_ms: int, now_ms: int, by: str | None = None, note: str | None = None) -> Told:
    """The end, by recovery or by somebody. What nobody heard begin ends without a word."""
    after = replace(
        incident,
        state=IncidentState.RESOLVED,
        resolved_at_ms=max(at_ms, incident.started_at_ms),
        resolved_by=by,
    )
    detail = {"note": note} if note else {}
    return after, _event(after, now_ms, EventKind.RESOLVED, detail, tell=Transition.RESOLVED, actor=by)


def acknowledged(incident: Incident, by: str, now_ms: int) -> Told:
    after = replace(incident, state=IncidentState.ACKNOWLEDGED, acknowledged_at_ms=now_ms, acknowledged_by=by)
    return after, _event(after, now_ms, EventKind.ACKNOWLEDGED, {}, tell=Transition.ACKNOWLEDGED, actor=by)


def commented(incident: Incident, by: str, text: str, now_ms: int) -> Event:
    """What somebody wrote; it goes to the timeline and to nobody else."""
    return _event(incident, now_ms, EventKind.COMMENT, {"text": text}, actor=by)


def affected(incident: Incident, by: UUID, now_ms: int) -> Told:
    """Another incident explains this one: it is listed there, and nobody is paged for it."""
    after = replace(incident, held=False, affected_by=by, explained_until_ms=None, alert_not_before_ms=None)
    return after, _event(after, now_ms, EventKind.AFFECTED, {"incident_id": str(by)})


def released(incident: Incident, now_ms: int) -> tuple[Incident, list[Event]]:
    """Nothing explains this one: people are told of it now, and of its end if that came meanwhile."""
    after = replace(
        incident,
        held=False,
        silent=False,
        affected_by=None,
        explained_until_ms=None,
        alert_not_before_ms=now_ms,
    )
    beginning = Transition.REOPENED if incident.reopened else Transition.OPENED
    told = [beginning] if incident.is_open else [beginning, Transition.RESOLVED]
    return after, [_event(after, now_ms, EventKind.RELEASED, {}, tell=transition) for transition in told]


def _event(
    incident: Incident,
    at_ms: int,
    kind: EventKind,
    detail: Mapping[str, object],
    *,
    tell: Transition | None = None,
    actor: str | None = None,
) -> Event:
    heard = None if incident.silent else tell
    return Event(incident.id, incident.organisation_id, at_ms, kind, actor, detail, heard)
