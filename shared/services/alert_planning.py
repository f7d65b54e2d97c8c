"""From changes of incidents, and from time that passes, to rows of deliveries: batch by batch, in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import Channel
from shared.db.repositories import alert_policies, channels, deliveries, escalations
from shared.db.repositories.escalations import IncidentRow, Opening, Progress, Transition
from shared.domain.alert_policy import DEFAULT_POLICY, AlertPolicySpec, select
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.escalation import Due, Ladder, evaluate
from shared.domain.notification import Event
from shared.observability import metrics
from shared.services.notifications import PLATFORM, delivery_rows, notification_of

log = structlog.get_logger(__name__)

_OPENED = frozenset({"opened", "reopened"})
_ANSWERS = {"acknowledged": Event.ACKNOWLEDGED, "resolved": Event.RESOLVED}


@dataclass(slots=True)
class _Desk:
    """What planning reads, for all organisations of a batch, and what it wants written."""

    now: datetime
    channels: dict[UUID, dict[UUID, Channel]] = field(default_factory=dict)
    policies: dict[UUID, dict[UUID, AlertPolicySpec]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[UUID, Progress] = field(default_factory=dict)
    unheard: list[IncidentRow] = field(default_factory=list)

    def known(self, incident: IncidentRow) -> dict[UUID, Channel]:
        return self.channels.get(incident.organisation_id, {})

    def defaults(self, organisation_id: UUID) -> list[UUID]:
        known = self.channels.get(organisation_id, {})
        return [channel.id for channel in known.values() if channel.is_default]

    def policy(self, incident: IncidentRow, policy_id: UUID | None) -> AlertPolicySpec:
        """A policy that was deleted meanwhile is replaced by the default one."""
        known = self.policies.get(incident.organisation_id, {})
        return DEFAULT_POLICY if policy_id is None else known.get(policy_id, DEFAULT_POLICY)

    def choose(self, incident: IncidentRow) -> UUID | None:
        if incident.kind == PLATFORM:
            return None
        known = self.policies.get(incident.organisation_id, {})
        return select(known.items(), incident.tags or {}, incident.severity)


@dataclass(frozen=True, slots=True)
class _Case:
    """One incident that is looked at, with the opening that counts; ``at`` is the time it is judged for."""

    incident: IncidentRow
    opening: Opening
    at: datetime

    @property
    def is_open(self) -> bool:
        incident = self.incident
        return incident.state == "open" and not incident.silent and incident.affected_by is None


class Planner:
    """Decides by the policies and writes deliveries; the caller owns the transaction."""

    async def transitions(self, session: AsyncSession, found: Sequence[Transition], now: datetime) -> list[int]:
        """Plan for changes of incidents, at most one each; answers the outbox rows that are done with."""
        if not found:
            return []
        wanted = {each.incident_id for each in found}
        incidents = await escalations.lock_incidents(session, wanted)
        absent = await escalations.gone(session, wanted - incidents.keys())
        ready = [each for each in found if each.incident_id in incidents]
        openings = await escalations.openings(session, [(each.incident_id, each.event_id) for each in ready])
        desk = await _desk(session, {incident.organisation_id for incident in incidents.values()}, now)
        told = await _told(session, openings)
        for change in ready:
            incident, opening = incidents[change.incident_id], openings.get(change.incident_id)
            if opening is None:
                log.error("a change of an incident that was never opened", incident=str(incident.id))
            elif change.kind in _OPENED:
                _open(desk, _Case(incident, opening, now))
            elif event := _ANSWERS.get(change.kind):
                _answer(desk, _Case(incident, opening, now), event, told.get(incident.id, ()))
        await _write(session, desk)
        return [each.outbox_id for each in found if each.incident_id in incidents or each.incident_id in absent]

    async def steps(self, session: AsyncSession, incidents: Mapping[UUID, IncidentRow], now: datetime) -> None:
        """Plan steps and reminders that are due."""
        if not incidents:
            return
        openings = await escalations.openings(session, [(incident_id, None) for incident_id in incidents])
        desk = await _desk(session, {incident.organisation_id for incident in incidents.values()}, now)
        for incident in incidents.values():
            case = _Case(incident, openings[incident.id], now)
            started_ms = to_milliseconds(case.opening.at)
            ladder = Ladder(started_ms, incident.next_step, incident.reminders, case.is_open)
            _climb(desk, case, incident.policy_id, ladder)
        await _write(session, desk)


def _open(desk: _Desk, case: _Case) -> None:
    incident, opening = case.incident, case.opening
    if incident.silent or incident.affected_by is not None:
        return
    # A change that is relayed late is judged for the time when it was true.
    ended = [at for at in (incident.acknowledged_at, incident.resolved_at) if at and at > opening.at]
    case = replace(case, at=min([case.at, *ended]))
    _climb(desk, case, desk.choose(incident), Ladder(to_milliseconds(opening.at)))
    if not case.is_open:
        desk.progress[incident.id] = replace(desk.progress[incident.id], next_alert_at=None)


def _climb(desk: _Desk, case: _Case, policy_id: UUID | None, ladder: Ladder) -> None:
    """Take the steps that are due, and remember when the next one is."""
    incident = case.incident
    defaults = desk.defaults(incident.organisation_id)
    plan = evaluate(desk.policy(incident, policy_id), defaults, ladder, to_milliseconds(case.at))
    next_at = None if plan.next_alert_ms is None else to_datetime(plan.next_alert_ms)
    desk.progress[incident.id] = Progress(incident.id, policy_id, plan.steps_done, plan.reminders_done, next_at)
    known = desk.known(incident)
    rows = _rows(desk, case, [due for due in plan.due if due.channel_id in known])
    if not rows and plan.steps_done > ladder.steps_done:
        # A step whose channels are all gone must not end in silence: the default channels are told instead.
        rows = _rows(desk, case, [Due(channel, Event.OPENED, "instead") for channel in defaults])
        if not rows:
            desk.unheard.append(incident)
    desk.rows += rows


def _rows(desk: _Desk, case: _Case, dues: Sequence[Due]) -> list[dict[str, Any]]:
    incident, opening, known = case.incident, case.opening, desk.known(case.incident)
    rows = []
    for event in dict.fromkeys(due.event for due in dues):
        notification = notification_of(incident, event, opening.at if event is Event.OPENED else case.at)
        told = [(known[due.channel_id], f"{opening.event_id} {due.key}") for due in dues if due.event is event]
        rows += delivery_rows(incident, notification, told, episode=opening.episode, now=desk.now)
    return rows


def _answer(desk: _Desk, case: _Case, event: Event, told: Collection[UUID]) -> None:
    """Whoever was told of the opening is told of this; nothing escalates any more."""
    incident, opening = case.incident, case.opening
    desk.progress[incident.id] = Progress(
        incident.id, incident.policy_id, incident.next_step, incident.reminders, None
    )
    known = desk.known(incident)
    at = incident.acknowledged_at if event is Event.ACKNOWLEDGED else incident.resolved_at
    notification = notification_of(incident, event, at or case.at)
    tag = f"{opening.event_id} {event.value.partition('.')[2]}"
    there = [(known[channel], tag) for channel in sorted(told) if channel in known]
    desk.rows += delivery_rows(incident, notification, there, episode=opening.episode, now=desk.now)


async def _desk(session: AsyncSession, organisations: Collection[UUID], now: datetime) -> _Desk:
    desk = _Desk(now)
    for channel in await channels.of_organisations(session, organisations):
        desk.channels.setdefault(channel.organisation_id, {})[channel.id] = channel
    for policy in await alert_policies.of_organisations(session, organisations):
        try:
            spec = AlertPolicySpec.model_validate(policy.spec)
        except ValidationError as error:  # its incidents fall to the next policy, at last to the default one
            log.error("an alert policy can't be read", policy=str(policy.id), problems=error.error_count())
            continue
        desk.policies.setdefault(policy.organisation_id, {})[policy.id] = spec
    return desk


async def _told(session: AsyncSession, openings: Mapping[UUID, Opening]) -> dict[UUID, list[UUID]]:
    found: dict[UUID, list[UUID]] = {}
    pairs = [(incident_id, opening.episode) for incident_id, opening in openings.items()]
    for each in await deliveries.told(session, pairs):
        found.setdefault(each.incident_id, []).append(each.channel_id)
    return found


async def _write(session: AsyncSession, desk: _Desk) -> None:
    await deliveries.add(session, desk.rows)
    await escalations.save_progress(session, list(desk.progress.values()))
    for incident in desk.unheard:
        metrics.notifications.labels("none", "no_channel").inc()
        log.warning(
            "nobody is told of an incident: there is no channel",
            incident=str(incident.id),
            organisation=str(incident.organisation_id),
        )
        detail = {"state": "no_channel", "error": "no channel is there to tell anybody"}
        await deliveries.note_on_incident(session, incident.id, detail, desk.now)
