"""Monitors: every change is one transaction of the monitor, its schedule periods and a message to the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.sealing import MaskWithoutSecretError, Sealer, StoredCheck
from shared.contracts.wire import RunSpec
from shared.db.base import new_id
from shared.db.models import Monitor, MonitorState, SchedulePeriod, StatePeriod
from shared.db.repositories import heartbeats, monitors, outbox
from shared.db.repositories.monitors import MonitorFilter, MonitorView
from shared.domain.checks import CheckSpec
from shared.domain.clock import Clock, to_datetime, to_milliseconds
from shared.domain.dependency import cycle_from
from shared.domain.monitor import MonitorSpec, RunOptions
from shared.services import incidents
from shared.services.errors import InvalidInputError, NotFoundError, Problem, RevisionMismatchError
from shared.services.heartbeats import KIND, begin

FIRST_REVISION = 1
_OPTIONS = tuple(name for name in MonitorSpec.model_fields if name != "check")
# A change of one of these starts a new cadence: the monitor is checked at once, and the audit counts anew.
_CADENCE = ("interval_seconds", "regions", "timeout_seconds", "check_spec")


class MonitorService:
    """Use cases over an open session of one tenant. The caller commits, then wakes the relay."""

    def __init__(self, sealer: Sealer, clock: Clock) -> None:
        self._sealer, self._clock = sealer, clock

    async def create(self, session: AsyncSession, organisation_id: UUID, spec: MonitorSpec) -> UUID:
        """Store a monitor, due at once; raises ``InvalidInputError`` for a mask in place of a secret."""
        now = self._now()
        monitor = Monitor(
            id=new_id(), organisation_id=organisation_id, revision=FIRST_REVISION, created_at=now, updated_at=now
        )
        _assign(monitor, _columns(spec, self._seal(spec.check, None)))
        if spec.parents:
            await monitors.lock_parents(session)
            await _check_parents(session, monitor, spec.parents)
        session.add(monitor)
        await session.flush()
        session.add(MonitorState(monitor_id=monitor.id, organisation_id=organisation_id, status_since=now))
        session.add(_first_state(monitor, now))
        await self._begin_cadence(session, monitor, now)
        await _announce(session, monitor)
        return monitor.id

    async def change(
        self, session: AsyncSession, monitor_id: UUID, patch: Mapping[str, Any], revisions: Sequence[int] | None
    ) -> None:
        """Merge fields into a monitor; null puts a field back to its default.

        ``revisions`` are those the caller accepts to change, None any. Raises ``NotFoundError``,
        ``RevisionMismatchError`` and ``InvalidInputError``.
        """
        if "parents" in patch:
            await monitors.lock_parents(session)
        monitor = await _locked(session, monitor_id)
        if revisions is not None and monitor.revision not in revisions:
            raise RevisionMismatchError(monitor.revision)
        spec = _validated({**self._editable(monitor), **patch})
        added = set(spec.parents) - set(monitor.parents)
        changed = _assign(monitor, _columns(spec, self._seal(spec.check, monitor.check_spec)))
        await _check_parents(session, monitor, list(added))
        if changed:
            await self._touch(session, monitor)
        if monitor.paused_at is None and changed.intersection(_CADENCE):
            await self._restart_cadence(session, monitor)
        # Behind the heartbeat's own row, which is locked before the state wherever heartbeats are judged.
        if "check_spec" in changed:
            await incidents.forget_counts(session, monitor_id)

    async def pause(self, session: AsyncSession, monitor_id: UUID) -> None:
        """Make no more slots due; nothing happens when the monitor is paused already."""
        monitor = await _locked(session, monitor_id)
        if monitor.paused_at is None:
            monitor.paused_at = self._now()
            await self._touch(session, monitor)
            await self._end_cadence(session, monitor)
            await heartbeats.rest(session, monitor_id)
            await incidents.pause(session, monitor_id, self._clock.now_ms())

    async def resume(self, session: AsyncSession, monitor_id: UUID) -> None:
        """Make the monitor due at once, and ``pending`` until it was judged."""
        monitor = await _locked(session, monitor_id)
        if monitor.paused_at is None:
            return
        monitor.paused_at = None
        await self._touch(session, monitor)
        await self._restart_cadence(session, monitor)
        await incidents.resume(session, monitor_id, self._clock.now_ms())

    async def delete(self, session: AsyncSession, monitor_id: UUID) -> None:
        """Remove a monitor; its incident ends, and nothing depends on it any more."""
        await monitors.lock_parents(session)
        monitor = await _locked(session, monitor_id)
        await self._orphan(session, monitor_id)
        await self._end_cadence(session, monitor)
        await heartbeats.remove(session, monitor_id)
        await incidents.close(session, monitor_id, self._clock.now_ms())
        await _announce(session, monitor)
        await session.flush()
        await monitors.remove(session, monitor_id)

    async def view(self, session: AsyncSession, monitor_id: UUID) -> MonitorView:
        """Raises ``NotFoundError``."""
        view = await monitors.get_view(session, monitor_id)
        if view is None:
            raise NotFoundError("monitor")
        return view

    async def views(
        self, session: AsyncSession, wanted: MonitorFilter, *, after: UUID | None, limit: int
    ) -> Sequence[MonitorView]:
        return await monitors.list_views(session, wanted, after=after, limit=limit)

    def run_spec(self, check: CheckSpec, options: RunOptions) -> RunSpec:
        """What a worker runs for a check that is not stored; raises ``InvalidInputError`` for a mask."""
        if check.kind == KIND:
            raise InvalidInputError([Problem("check.kind", "a heartbeat is not checked: it reports by itself")])
        stored = self._seal(check, None)
        return RunSpec(stored, options.timeout_seconds, options.retries, options.retry_delay_seconds)

    def _seal(self, check: CheckSpec, kept: StoredCheck | None) -> StoredCheck:
        try:
            return self._sealer.seal(check, kept)
        except MaskWithoutSecretError as error:
            raise InvalidInputError([Problem(".".join(("check", *map(str, error.path))), str(error))]) from error

    def _editable(self, monitor: Monitor) -> dict[str, Any]:
        fields = {name: getattr(monitor, name) for name in _OPTIONS}
        return {**fields, "check": self._sealer.masked(monitor.check_spec)}

    async def _orphan(self, session: AsyncSession, monitor_id: UUID) -> None:
        for child in await monitors.children(session, monitor_id):
            child.parents = [parent for parent in child.parents if parent != monitor_id]
            await self._touch(session, child)

    async def _touch(self, session: AsyncSession, monitor: Monitor) -> None:
        monitor.revision += 1
        monitor.updated_at = self._now()
        await _announce(session, monitor)

    async def _end_cadence(self, session: AsyncSession, monitor: Monitor) -> datetime:
        """Close the open period and return when; never before it began, whatever this machine's clock says."""
        now = self._now()
        period = await monitors.open_period(session, monitor.id)
        if period is None:
            return now
        period.ends_at = max(now, period.starts_at)
        await session.flush()
        return period.ends_at

    async def _restart_cadence(self, session: AsyncSession, monitor: Monitor) -> None:
        await self._begin_cadence(session, monitor, await self._end_cadence(session, monitor))

    async def _begin_cadence(self, session: AsyncSession, monitor: Monitor, now: datetime) -> None:
        if monitor.kind == KIND:
            await begin(session, monitor, self._sealer, to_milliseconds(now))
            return
        await heartbeats.remove(session, monitor.id)
        session.add(_period(monitor, now))

    def _now(self) -> datetime:
        return to_datetime(self._clock.now_ms())


async def _locked(session: AsyncSession, monitor_id: UUID) -> Monitor:
    monitor = await monitors.lock(session, monitor_id)
    if monitor is None:
        raise NotFoundError("monitor")
    return monitor


def _validated(fields: Mapping[str, Any]) -> MonitorSpec:
    try:
        return MonitorSpec.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise InvalidInputError.of(error.errors(include_url=False)) from error


def _columns(spec: MonitorSpec, check: StoredCheck) -> dict[str, Any]:
    options = {name: getattr(spec, name) for name in _OPTIONS}
    return {**options, "kind": spec.check.kind, "check_spec": check}


def _assign(monitor: Monitor, columns: Mapping[str, Any]) -> set[str]:
    """Set columns and name those that changed."""
    changed = {name for name, value in columns.items() if getattr(monitor, name) != value}
    for name in changed:
        setattr(monitor, name, columns[name])
    return changed


async def _check_parents(session: AsyncSession, monitor: Monitor, added: Sequence[UUID]) -> None:
    """Raises ``InvalidInputError`` for a parent that does not exist, and for one that depends on the monitor."""
    if not added:
        return
    known = await monitors.ancestry(session, added)
    if unknown := [str(parent) for parent in added if parent not in known]:
        raise InvalidInputError([Problem("parents", f"there is no monitor {unknown[0]}")])
    if cycle := cycle_from(monitor.id, {**known, monitor.id: monitor.parents}):
        path = " -> ".join(str(step) for step in cycle)
        raise InvalidInputError([Problem("parents", f"monitors can't depend on each other in a circle: {path}")])


def _first_state(monitor: Monitor, now: datetime) -> StatePeriod:
    return StatePeriod(
        organisation_id=monitor.organisation_id, monitor_id=monitor.id, status="pending", starts_at=now
    )


def _period(monitor: Monitor, starts_at: datetime) -> SchedulePeriod:
    return SchedulePeriod(
        organisation_id=monitor.organisation_id,
        monitor_id=monitor.id,
        revision=monitor.revision,
        interval_ms=monitor.interval_seconds * 1000,
        regions=monitor.regions,
        starts_at=starts_at,
    )


async def _announce(session: AsyncSession, monitor: Monitor) -> None:
    payload = {"revision": monitor.revision}
    await outbox.add(session, monitor.organisation_id, outbox.SCHEDULE_TOPIC, str(monitor.id), payload)
