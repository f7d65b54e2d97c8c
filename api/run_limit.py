"""How many checks one organisation may have running on demand: they bypass the schedule, so they are bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from shared.services.errors import TooManyRunsError

RUNS_PER_ORGANISATION = 10


class RunLimit:
    """Counts running checks of this process."""

    def __init__(self, limit: int = RUNS_PER_ORGANISATION) -> None:
        self._limit = limit
        self._running: Counter[UUID] = Counter()

    @contextmanager
    def slot(self, organisation_id: UUID) -> Iterator[None]:
        """Hold one of the organisation's places; raises ``TooManyRunsError`` when all are taken."""
        if self._running[organisation_id] >= self._limit:
            raise TooManyRunsError(self._limit)
        self._running[organisation_id] += 1
        try:
            yield
        finally:
            self._running[organisation_id] -= 1
            self._running += Counter()  # drops the zeros, so that the table does not grow with time
