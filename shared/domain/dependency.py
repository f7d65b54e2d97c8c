"""Monitors that depend on others: a child is not paged for while a parent explains its failure. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.domain.mass_failure import Ruling
from shared.domain.state import WELL, MonitorStatus

MAX_PARENTS = 10
LONGEST_HOLD_MS = 60_000


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a parent stands. ``incident_id`` is its open incident of severity down, if any."""

    interval_ms: int
    status: MonitorStatus
    overlay: MonitorStatus | None
    last_slot_ms: int
    consecutive_failures: int
    incident_id: UUID | None = None

    @property
    def hold_ms(self) -> int:
        """A child may fail a moment before its parent is looked at: one interval and a half, a minute at most."""
        return min(self.interval_ms * 3 // 2, LONGEST_HOLD_MS)

    def is_cleared(self, failed_at_ms: int) -> bool:
        """Whether it was looked at since the child failed, and was well."""
        return self.status in WELL and not self.consecutive_failures and self.last_slot_ms >= failed_at_ms

    @property
    def is_down_in_maintenance(self) -> bool:
        """It has no incident then, and explains its children all the same."""
        return self.status is MonitorStatus.DOWN and self.overlay is MonitorStatus.MAINTENANCE


def explanation(parents: Iterable[Parent]) -> UUID | None:
    """The incident of a parent that is down."""
    return next((parent.incident_id for parent in parents if parent.incident_id), None)


def judge(parents: Iterable[Parent], failed_at_ms: int, held_ms: int) -> Ruling:
    """Whether a child's alert that waits since ``held_ms`` goes on waiting for parents that are not down."""
    is_waiting = any(
        parent.is_down_in_maintenance or (held_ms < parent.hold_ms and not parent.is_cleared(failed_at_ms))
        for parent in parents
    )
    return Ruling.HOLD if is_waiting else Ruling.RELEASE


def cycle_from(start: UUID, parents_of: Mapping[UUID, Collection[UUID]]) -> Sequence[UUID] | None:
    """The way from a monitor over its parents back to itself, or None."""
    paths: list[list[UUID]] = [[start]]
    seen: set[UUID] = set()
    while paths:
        path = paths.pop()
        for parent in parents_of.get(path[-1], ()):
            if parent == start:
                return [*path, start]
            if parent not in seen:
                seen.add(parent)
                paths.append([*path, parent])
    return None
