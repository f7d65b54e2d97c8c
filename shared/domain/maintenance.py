"""Maintenance windows: when and for which monitors failures are expected. Silent inside, the truth at the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, model_validator

from shared.domain.clock import to_milliseconds
from shared.domain.cron import HORIZON
from shared.domain.moment import Moment
from shared.domain.recurrence import Recurrence, Span
from shared.domain.spec import Name, Strict

AHEAD_MS = 7 * 24 * 3_600_000
"""How far ahead occurrences are planned."""
MAX_OCCURRENCES = 400


class MaintenanceSpec(Strict):
    """What its owner writes: once from ``starts_at`` to ``ends_at``, or recurring by ``schedule``.

    It applies to the monitors named, to those that carry all of ``tags``, or to all of the organisation.
    """

    name: Name
    monitors: Annotated[list[UUID], Field(max_length=1000)] = []
    tags: Annotated[dict[str, Annotated[str, Field(max_length=200)]], Field(max_length=50)] = {}
    all: bool = False
    starts_at: Moment | None = None
    ends_at: Moment | None = None
    schedule: Recurrence | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not (self.monitors or self.tags or self.all):
            raise ValueError("monitors: name monitors or tags, or set all to true")
        if (self.starts_at is None) != (self.ends_at is None):
            raise ValueError("ends_at: a window has both starts_at and ends_at")
        if (self.starts_at is None) == (self.schedule is None):
            raise ValueError("schedule: give either starts_at and ends_at, or a schedule")
        if self.starts_at and self.ends_at and self.starts_at >= self.ends_at:
            raise ValueError("ends_at: it must be later than starts_at")
        return self

    def check(self, now_ms: int) -> None:
        """Raise ``ValueError`` for a window that will never be open again."""
        if self.schedule is not None:
            self.schedule.check(now_ms)
        elif self.ends_at is not None and to_milliseconds(self.ends_at) <= now_ms:
            raise ValueError("ends_at: it is over by now")

    def occurrences(self, planned_from_ms: int, now_ms: int) -> list[Span]:
        """The spans from now to a week ahead.

        None begins before ``planned_from_ms``, the last change of the window: what was told cannot be unsaid.
        """
        found = itertools.islice(self._spans(now_ms, now_ms + AHEAD_MS), MAX_OCCURRENCES)
        return [(max(start, planned_from_ms), end) for start, end in found if end > planned_from_ms]

    def next_span(self, now_ms: int) -> Span | None:
        """The span that is open now, or else the next one; of a schedule within eight years."""
        if self.ends_at is not None:
            return next(self._spans(now_ms, to_milliseconds(self.ends_at)), None)
        return next(self._spans(now_ms, now_ms + int(HORIZON.total_seconds()) * 1000), None)

    def _spans(self, since_ms: int, until_ms: int) -> Iterator[Span]:
        if self.schedule is not None:
            return self.schedule.spans(since_ms, until_ms)
        assert self.starts_at is not None
        assert self.ends_at is not None
        once = to_milliseconds(self.starts_at), to_milliseconds(self.ends_at)
        return iter([once] if once[0] < until_ms and once[1] > since_ms else [])
