"""Maintenance windows: written by people, planned a week ahead, and watched for their edges.

Who judges results asks ``shared.db.repositories.maintenance.spans_of``. Nobody has to be running at an edge: a span
is true from its planning on, and the edge is told to the incidents when somebody sweeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.models import MaintenanceWindow
from shared.db.repositories import maintenance
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime, to_milliseconds
from shared.domain.maintenance import MaintenanceSpec
from shared.domain.recurrence import Span
from shared.services.errors import InvalidInputError, NotFoundError, Problem

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0
PLAN_SECONDS = 3600.0
KEPT = timedelta(days=30)
_BATCH = 200
_REASON_CHARACTERS = 300

Reconsider = Callable[[AsyncSession, Sequence[UUID], int], Awaitable[object]]
"""Looks again at monitors (sorted ids) as of a moment in milliseconds, in the transaction of the session."""


class MaintenanceService:
    """Use cases over an open session of one tenant. A change ends what the window does now, and plans anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def create(
        self, session: AsyncSession, organisation_id: UUID, spec: MaintenanceSpec
    ) -> MaintenanceWindow:
        """Store a window and plan it; raises ``InvalidInputError``."""
        now_ms = self._clock.now_ms()
        now = to_datetime(now_ms)
        _check_times(spec, now_ms)
        await _check_monitors(session, set(spec.monitors))
        window = MaintenanceWindow(
            id=new_id(), organisation_id=organisation_id, created_at=now, updated_at=now, planned_from=now
        )
        _assign(window, spec)
        session.add(window)
        await session.flush()
        await maintenance.plan(session, window.id, spec.occurrences(now_ms, now_ms))
        return window

    async def change(self, session: AsyncSession, window_id: UUID, patch: Mapping[str, Any]) -> MaintenanceWindow:
        """Merge fields into a window; null puts a field back to its default.

        Raises ``NotFoundError`` and ``InvalidInputError``.
        """
        window = await self._locked(session, window_id)
        before = spec_of(window)
        spec = _validated({**before.model_dump(mode="json"), **patch})
        # An end in the past is how an open window is ended; a schedule that never happens is a mistake.
        if spec.schedule is not None and spec.schedule != before.schedule:
            _check_times(spec, self._clock.now_ms())
        await _check_monitors(session, set(spec.monitors) - set(before.monitors))
        now_ms = self._clock.now_ms()
        window.updated_at = to_datetime(now_ms)
        _assign(window, spec)
        if spec.model_copy(update={"name": before.name}) != before:
            await self._plan_anew(session, window, spec, now_ms)
        return window

    async def delete(self, session: AsyncSession, window_id: UUID) -> None:
        """Remove a window; one that is open ends now. Raises ``NotFoundError``."""
        window = await self._locked(session, window_id)
        await maintenance.cut(session, window_id, to_datetime(self._clock.now_ms()))
        await session.delete(window)

    async def get(self, session: AsyncSession, window_id: UUID) -> MaintenanceWindow:
        """Raises ``NotFoundError``."""
        return _found(await maintenance.get_window(session, window_id))

    async def windows(
        self, session: AsyncSession, *, after: UUID | None, limit: int
    ) -> Sequence[MaintenanceWindow]:
        return await maintenance.list_windows(session, after=after, limit=limit)

    async def _locked(self, session: AsyncSession, window_id: UUID) -> MaintenanceWindow:
        return _found(await maintenance.get_window(session, window_id, lock=True))

    async def _plan_anew(
        self, session: AsyncSession, window: MaintenanceWindow, spec: MaintenanceSpec, now_ms: int
    ) -> None:
        window.planned_from = to_datetime(now_ms)
        await session.flush()
        await maintenance.cut(session, window.id, window.planned_from)
        await maintenance.plan(session, window.id, spec.occurrences(now_ms, now_ms))


def spec_of(window: MaintenanceWindow) -> MaintenanceSpec:
    """A stored window as it was written."""
    return MaintenanceSpec.model_validate(
        {
            "name": window.name,
            "monitors": window.monitor_ids,
            "tags": window.tags,
            "all": window.all_monitors,
            "starts_at": window.starts_at,
            "ends_at": window.ends_at,
            "schedule": window.schedule,
        }
    )


def _assign(window: MaintenanceWindow, spec: MaintenanceSpec) -> None:
    window.name, window.tags, window.all_monitors = spec.name, dict(spec.tags), spec.all
    window.monitor_ids = list(spec.monitors)
    window.starts_at, window.ends_at = spec.starts_at, spec.ends_at
    window.schedule = spec.schedule.model_dump(mode="json", exclude_none=True) if spec.schedule else None


def _validated(fields: Mapping[str, Any]) -> MaintenanceSpec:
    try:
        return MaintenanceSpec.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise InvalidInputError.of(error.errors(include_url=False)) from error


def _check_times(spec: MaintenanceSpec, now_ms: int) -> None:
    try:
        spec.check(now_ms)
    except ValueError as error:
        field = "schedule" if spec.schedule else "ends_at"
        raise InvalidInputError([Problem(field, str(error).removeprefix("ends_at: "))]) from error


async def _check_monitors(session: AsyncSession, monitor_ids: set[UUID]) -> None:
    if unknown := await maintenance.unknown_monitors(session, monitor_ids):
        raise InvalidInputError([Problem("monitors", f"there is no monitor {min(unknown)}")])


def _found(window: MaintenanceWindow | None) -> MaintenanceWindow:
    if window is None:
        raise NotFoundError("maintenance window")
    return window


def _ahead(window: MaintenanceWindow, now_ms: int) -> list[Span]:
    """What is to be planned. A window that this release cannot read keeps what it has, and holds up nobody."""
    try:
        return spec_of(window).occurrences(to_milliseconds(window.planned_from), now_ms)
    except ValueError as error:
        reason = " ".join(str(error).split())[:_REASON_CHARACTERS]
        log.error("a maintenance window can't be read and is not planned", window=str(window.id), reason=reason)
        return []


class MaintenanceKeeper:
    """Plans windows ahead and tells of their edges; any number of processes may run one."""

    def __init__(self, database: Database, clock: Clock, reconsider: Reconsider) -> None:
        self._database, self._clock, self._reconsider = database, clock, reconsider
        self._planned_at: float | None = None

    async def run(self) -> None:
        """Sweep every second and plan every hour, until cancelled; what fails is done by the next round."""
        while True:
            try:
                if self._planned_at is None or self._clock.monotonic() - self._planned_at >= PLAN_SECONDS:
                    await self.plan()
                    self._planned_at = self._clock.monotonic()
                await self.sweep()
            except (SQLAlchemyError, OSError) as error:
                log.warning("maintenance windows could not be swept", error=str(error).partition("\n")[0])
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Have the monitors of windows that began or ended looked at again; answers how many those were.

        The marks on the windows are committed last, and keep other sweeps away until then. The monitors are looked
        at in transactions of their own, so that results of one of them wait for a few others only. After a crash in
        between the next sweep looks at all of them again, and finds nothing to tell of those that are done.
        """
        async with self._database.system() as marks:
            monitor_ids = await maintenance.turn(marks, to_datetime(self._clock.now_ms()))
            for start in range(0, len(monitor_ids), _BATCH):
                async with self._database.system() as session:
                    await self._reconsider(session, monitor_ids[start : start + _BATCH], self._clock.now_ms())
                await maintenance.stay(marks)
        return len(monitor_ids)

    async def plan(self) -> None:
        """Plan every window a week ahead, and forget what has been over for a month."""
        now_ms = self._clock.now_ms()
        now = to_datetime(now_ms)
        async with self._database.system() as session:
            for window in await maintenance.living_windows(session, now):
                await maintenance.plan(session, window.id, _ahead(window, now_ms))
            await maintenance.forget(session, now - KEPT)
