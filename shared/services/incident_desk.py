"""What people do with incidents: read them, acknowledge them, end them, and write down what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.models import IncidentEvent
from shared.db.repositories import incidents
from shared.db.repositories.incidents import IncidentView
from shared.db.repositories.state import lock_states
from shared.domain import incident as machine
from shared.domain.clock import Clock
from shared.domain.incident import Event, Incident, IncidentState
from shared.services.api_keys import actor_name
from shared.services.errors import IncidentResolvedError, NotFoundError

MOST_EVENTS = 1_000
MOST_AFFECTED = 1_000


@dataclass(frozen=True, slots=True)
class IncidentStory:
    """An incident with its timeline and what it explains, both bounded."""

    view: IncidentView
    events: Sequence[IncidentEvent]
    affected: Sequence[Row[*tuple[Any, ...]]]


class IncidentDesk:
    """Use cases over an open session of one tenant; the caller commits. Each raises ``NotFoundError``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def story(self, session: AsyncSession, incident_id: UUID) -> IncidentStory:
        view = await incidents.get_view(session, incident_id)
        if view is None:
            raise NotFoundError("incident")
        return IncidentStory(
            view,
            await incidents.events_of(session, incident_id, MOST_EVENTS),
            await incidents.affected_by(session, incident_id, MOST_AFFECTED),
        )

    async def views(
        self,
        session: AsyncSession,
        *,
        state: IncidentState | None,
        monitor_id: UUID | None,
        before: UUID | None,
        limit: int,
    ) -> Sequence[IncidentView]:
        return await incidents.list_views(
            session, state=state and state.value, monitor_id=monitor_id, before=before, limit=limit
        )

    async def acknowledge(self, session: AsyncSession, incident_id: UUID, key_id: UUID) -> None:
        """Stop the escalation; doing it twice changes nothing. Raises ``IncidentResolvedError``."""
        incident = await self._locked_open(session, incident_id)
        if incident.state is IncidentState.OPEN:
            by = await actor_name(session, key_id)
            await _write(session, *machine.acknowledged(incident, by, self._clock.now_ms()))

    async def resolve(self, session: AsyncSession, incident_id: UUID, key_id: UUID, note: str | None) -> None:
        """End it by hand; no other one is opened before the monitor was well.

        Raises ``IncidentResolvedError``.
        """
        incident = await self._locked_open(session, incident_id)
        now_ms = self._clock.now_ms()
        await _write(session, *machine.resolved(incident, now_ms, now_ms, await actor_name(session, key_id), note))

    async def comment(self, session: AsyncSession, incident_id: UUID, key_id: UUID, text: str) -> None:
        """Add to the timeline, also after the end."""
        incident = await self._locked(session, incident_id)
        event = machine.commented(incident, await actor_name(session, key_id), text, self._clock.now_ms())
        await incidents.write_events(session, [event])

    async def _locked_open(self, session: AsyncSession, incident_id: UUID) -> Incident:
        incident = await self._locked(session, incident_id)
        if not incident.is_open:
            raise IncidentResolvedError
        return incident

    async def _locked(self, session: AsyncSession, incident_id: UUID) -> Incident:
        """Lock the monitor's state first, as the recorder does: whoever holds it decides on its incidents."""
        found = await incidents.monitor_of(session, incident_id)
        if found is None:
            raise NotFoundError("incident")
        if found.monitor_id is not None:
            await lock_states(session, [found.monitor_id])
        incident = await incidents.lock(session, incident_id)
        if incident is None:
            raise NotFoundError("incident")
        return incident


async def _write(session: AsyncSession, incident: Incident, event: Event) -> None:
    await incidents.save(session, [incident])
    await incidents.write_events(session, [event])
