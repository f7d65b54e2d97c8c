"""Alerts that wait a moment: let go, or explained by a parent that is down or by a worker that sees nothing.

The recorder holds an alert back when its worker has not shown that it sees the world, or when the monitor has
parents. One sweep at a time, in any process with a database, decides on all that wait; when nobody sweeps they wait
in the database, and the next sweep decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.repositories import incidents, suspicion
from shared.db.repositories.suspicion import Held, MassFailure
from shared.domain import dependency, mass_failure
from shared.domain import incident as machine
from shared.domain.dependency import Parent
from shared.domain.incident import Event, Incident, IncidentKind, Severity
from shared.domain.mass_failure import WINDOW_MS, Beat, Ruling, Suspect

log = structlog.get_logger(__name__)

Beats = Mapping[str, Mapping[str, Sequence[Beat]]]
"""By region and worker."""


async def sweep(session: AsyncSession, now_ms: int) -> int:
    """Judge every alert that waits; answers how many incidents changed. For system sessions."""
    if await suspicion.is_idle(session) or not await suspicion.take_sweep_lock(session):
        return 0
    failures = await suspicion.mass_failures(session)
    waiting = await suspicion.held(session)
    regions = {held.incident.region for held in waiting} | {suspect.region for suspect in failures}
    beats = await suspicion.beats(session, regions, now_ms - WINDOW_MS)
    parent_ids = {parent for held in waiting for parent in held.parents}
    parents = await suspicion.parents(session, parent_ids) if parent_ids else {}
    bench = _Bench(failures, beats, parents, await suspicion.operator(session), now_ms)
    bench.end_what_has_passed()
    for held in waiting:
        bench.judge(held)
    return await bench.write(session)


class _Bench:
    """One sweep while it judges."""

    def __init__(
        self,
        failures: Mapping[Suspect, MassFailure],
        beats: Beats,
        parents: Mapping[UUID, Parent],
        operator: UUID | None,
        now_ms: int,
    ) -> None:
        self._failures, self._beats, self._parents = dict(failures), beats, parents
        self._operator, self._now_ms = operator, now_ms
        self._changed: dict[UUID, Incident] = {}
        self._events: list[Event] = []
        self._rulings: dict[tuple[str, str, int, int], Ruling] = {}

    def end_what_has_passed(self) -> None:
        """Resolve the platform's incidents whose suspects see again; what still fails is told when it next does."""
        for suspect, failure in list(self._failures.items()):
            since = [beat for beat in self._witnesses(suspect) if beat.at_ms >= failure.incident.opened_at_ms]
            if mass_failure.has_passed(since, failure.affected, failure.still_failing):
                del self._failures[suspect]
                self._put(*machine.resolved(failure.incident, self._now_ms, self._now_ms))
                log.info("a mass failure has passed", worker=suspect.worker, region=suspect.region)

    def judge(self, held: Held) -> None:
        incident = held.incident
        parents = [self._parents[parent] for parent in held.parents if parent in self._parents]
        ruling = self._ruling(held)
        explained_by = dependency.explanation(parents)
        if explained_by is None and ruling is Ruling.MASS:
            explained_by = self._mass_failure(held)
        held_ms = self._now_ms - incident.opened_at_ms
        if explained_by:
            self._put(*machine.affected(incident, explained_by, self._now_ms))
        elif Ruling.HOLD not in (ruling, dependency.judge(parents, held.check_started_at_ms, held_ms)):
            self._put(*machine.released(incident, self._now_ms))

    def _ruling(self, held: Held) -> Ruling:
        """What the worker's beats say; the same for all that failed within one of them."""
        incident, started = held.incident, held.check_started_at_ms
        place = (incident.worker, incident.region, mass_failure.beat_of(started), incident.opened_at_ms)
        if place not in self._rulings:
            beats = self._beats_of(Suspect(incident.worker, incident.region))
            ruling = mass_failure.judge(beats, started, self._now_ms - incident.opened_at_ms)
            is_known = self._known(incident.worker, incident.region) is not None
            self._rulings[place] = Ruling.MASS if is_known and ruling is not Ruling.RELEASE else ruling
        return self._rulings[place]

    def _known(self, worker: str, region: str) -> Suspect | None:
        suspects = (Suspect(worker, region), Suspect("", region))
        return next((suspect for suspect in suspects if suspect in self._failures), None)

    def _beats_of(self, suspect: Suspect) -> list[Beat]:
        workers = self._beats.get(suspect.region, {})
        chosen = [workers.get(suspect.worker, ())] if suspect.worker else workers.values()
        return sorted((beat for beats in chosen for beat in beats), key=lambda beat: beat.at_ms)

    def _witnesses(self, suspect: Suspect) -> list[Beat]:
        """What the suspect saw of late; where it is gone for ``WINDOW_MS``, what others of its region saw."""
        return self._beats_of(suspect) or self._beats_of(Suspect("", suspect.region))

    def _mass_failure(self, held: Held) -> UUID | None:
        """The incident of the platform that explains this failure, opened when there is none."""
        incident = held.incident
        suspect = self._known(incident.worker, incident.region)
        if suspect is None:
            workers = self._beats.get(incident.region, {})
            suspect = mass_failure.suspect(incident.worker, incident.region, workers, held.check_started_at_ms)
            self._open(suspect, held)
        failure = self._failures.get(suspect)
        return failure.incident.id if failure else None

    def _open(self, suspect: Suspect, held: Held) -> None:
        if self._operator is None:
            return
        run = mass_failure.run_of_failures(self._beats_of(suspect), held.check_started_at_ms)
        incident = Incident(
            id=new_id(),
            organisation_id=self._operator,
            monitor_id=None,
            kind=IncidentKind.PLATFORM,
            severity=Severity.DOWN,
            cause=mass_failure.CAUSE,
            message=_message(suspect, run),
            started_at_ms=held.check_started_at_ms,
            opened_at_ms=self._now_ms,
            last_failure_at_ms=held.check_started_at_ms,
            alert_not_before_ms=self._now_ms,
            worker=suspect.worker,
            region=suspect.region,
        )
        self._failures[suspect] = MassFailure(incident, 0, 0)
        self._put(incident, machine.opened(incident))
        log.error("many monitors fail at once", worker=suspect.worker, region=suspect.region)

    def _put(self, incident: Incident, events: Event | list[Event]) -> None:
        self._changed[incident.id] = incident
        self._events.extend([events] if isinstance(events, Event) else events)

    async def write(self, session: AsyncSession) -> int:
        if self._changed:
            await incidents.save(session, list(self._changed.values()))
            await incidents.write_events(session, self._events)
        return len(self._changed)


def _message(suspect: Suspect, run: Sequence[Beat]) -> str:
    turned, well = sum(beat.turned for beat in run), sum(beat.well for beat in run)
    who = f"worker {suspect.worker} in region {suspect.region}" if suspect.worker else f"region {suspect.region}"
    return (
        f"{turned} monitors began to fail at once as seen by {who}, which found {well} well meanwhile: "
        "suspect it, or its network, before their targets"
    )
