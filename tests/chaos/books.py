"""The books of a span of time: what was due, what became of it, and what the target saw of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

import asyncpg

from shared.domain.audit import Period, Span, differences
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.result import SlotKey
from shared.domain.slots import Cadence

ON_TIME_MS = 1_000
# A worker notes the time before it opens a connection; the request arrives a little later.
_REQUEST_TRAVELS_MS = 4_000
_CLOCK_SLACK_MS = 50

_PERIODS = "SELECT monitor_id, interval_ms, starts_at, regions, ends_at FROM schedule_periods"
_RESULTS = (
    "SELECT monitor_id, region, scheduled_at, started_at, status, error_kind, error_message FROM check_results"
    " WHERE scheduled_at > $1 AND scheduled_at <= $2 AND trigger = 'schedule'"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of ``check_results``."""

    key: SlotKey
    started_ms: int | None
    status: str
    reason: str | None
    message: str | None

    @property
    def lateness_ms(self) -> int:
        return 0 if self.started_ms is None else self.started_ms - self.key.slot_ms


@dataclass(frozen=True, slots=True)
class Books:
    """Slots in ``(begins, ends]``: due, stored, and the differences of the two."""

    begins_ms: int
    ends_ms: int
    due: int
    stored: tuple[Stored, ...]
    unaccounted: tuple[SlotKey, ...]
    unscheduled: tuple[SlotKey, ...]

    @property
    def run(self) -> list[Stored]:
        return [row for row in self.stored if row.started_ms is not None]

    @property
    def missed(self) -> list[Stored]:
        return [row for row in self.stored if row.status == "missed"]

    @property
    def alarms(self) -> list[Stored]:
        """Results that blame the target."""
        return [row for row in self.stored if row.status == "down"]

    @property
    def doubled(self) -> list[SlotKey]:
        return [key for key, times in Counter(row.key for row in self.stored).items() if times > 1]

    @property
    def reasons(self) -> Mapping[str, int]:
        return Counter(str(row.reason) for row in self.missed)

    def longest_gap_ms(self) -> int:
        """Between two starts of checks, across all monitors; also before the first and after the last."""
        starts = sorted((self.begins_ms, self.ends_ms, *(row.started_ms or 0 for row in self.run)))
        return max((later - earlier for earlier, later in pairwise(starts)), default=0)

    def latest_ms(self) -> int:
        return max((row.lateness_ms for row in self.run), default=0)

    def recovered_ms(self) -> int:
        """The moment from which on every check began on time: the beginning when all of them did."""
        late = [row.started_ms or 0 for row in self.run if row.lateness_ms > ON_TIME_MS]
        return max([self.begins_ms, *late, *(row.key.slot_ms for row in self.missed)])


async def read_books(database_url: str, begins_ms: int, ends_ms: int) -> Books:
    """Raises what asyncpg raises when PostgreSQL is away."""
    connection = await asyncpg.connect(database_url, server_settings={"role": "tocsin_system"}, timeout=5)
    try:
        periods = [
            Period(
                Cadence(row["monitor_id"], row["interval_ms"], to_milliseconds(row["starts_at"])),
                tuple(row["regions"]),
                row["ends_at"] and to_milliseconds(row["ends_at"]),
            )
            for row in await connection.fetch(_PERIODS)
        ]
        rows = await connection.fetch(_RESULTS, to_datetime(begins_ms), to_datetime(ends_ms))
    finally:
        await connection.close()
    stored = tuple(_stored(row) for row in rows)
    spans = {period.cadence.monitor_id: Span(begins_ms, ends_ms) for period in periods}
    unaccounted, unscheduled = differences(periods, spans, [row.key for row in stored])
    due = sum(period.count(begins_ms, ends_ms) * len(period.regions) for period in periods)
    return Books(begins_ms, ends_ms, due, stored, unaccounted, unscheduled)


def _stored(row: asyncpg.Record) -> Stored:
    key = SlotKey(row["monitor_id"], row["region"], to_milliseconds(row["scheduled_at"]))
    started = row["started_at"] and to_milliseconds(row["started_at"])
    return Stored(key, started, row["status"], row["error_kind"], row["error_message"])


def run_twice(
    results: Iterable[Stored], requests: Iterable[tuple[str, int]], paths: Mapping[str, UUID]
) -> list[tuple[str, int]]:
    """Requests that belong to no result: checks that ran more than once, or whose worker died with them."""
    starts: dict[UUID, list[int]] = defaultdict(list)
    for started_ms, monitor_id in sorted((row.started_ms or 0, row.key.monitor_id) for row in results):
        starts[monitor_id].append(started_ms)
    in_order = sorted(requests, key=lambda request: request[1])
    return [(path, arrived) for path, arrived in in_order if not _matched(starts[paths[path]], arrived)]


def _matched(starts: list[int], arrived: int) -> bool:
    """Strike out the start that this request belongs to."""
    index = bisect_left(starts, arrived - _REQUEST_TRAVELS_MS)
    if index < len(starts) and starts[index] <= arrived + _CLOCK_SLACK_MS:
        del starts[index]
        return True
    return False
