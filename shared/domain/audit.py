"""The books of slots: what was due against what is stored. Pure; due slots come from the schedules alone.

Nothing here trusts the queue or the scheduler: a slot that they lost shows up because it was due and nothing is
stored for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.domain.result import SlotKey
from shared.domain.slots import SETTLING_MS, Cadence, phase_ms, slots_between

Place = tuple[UUID, str]

# A worker may take a check this long after its slot (or one interval, if that is longer), and needs time to run it.
PATIENCE_MS = 30_000
MARGIN_MS = 60_000
LONGEST_SETTLING_MS = 2 * 86_400_000 + MARGIN_MS


@dataclass(frozen=True, slots=True)
class Period:
    """A half-open span [starts, ends) of unchanged cadence of a monitor; an open one has no end."""

    cadence: Cadence
    regions: tuple[str, ...]
    ends_at_ms: int | None = None

    def window(self, after_ms: int, until_ms: int) -> tuple[int, int]:
        """The part of ``(after, until]`` in which this period makes slots due; empty when the first is not less."""
        last = until_ms if self.ends_at_ms is None else min(until_ms, self.ends_at_ms - 1)
        return max(after_ms, self.cadence.starts_at_ms - 1), last

    def slots(self, after_ms: int, until_ms: int) -> Iterator[int]:
        return slots_between(self.cadence, *self.window(after_ms, until_ms))

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many slots there are, without making them."""
        after, until = self.window(after_ms, until_ms)
        if until <= after:
            return 0
        interval, start = self.cadence.interval_ms, self.cadence.starts_at_ms
        phase = phase_ms(self.cadence.monitor_id, interval)
        regular_after = max(after, start + SETTLING_MS)
        regular = (until - phase) // interval - (regular_after - phase) // interval if until > regular_after else 0
        return regular + (after < start <= until)

    def settled_until(self, now_ms: int) -> int:
        """Slots up to here have had all the time they may take; later ones may still be on their way."""
        return now_ms - 2 * max(self.cadence.interval_ms, PATIENCE_MS) - MARGIN_MS


@dataclass(frozen=True, slots=True)
class Span:
    """The part of time in which one monitor's slots are audited: ``(after, until]``, in milliseconds."""

    after_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Books:
    """The outcome: how many slots were due, and every one whose books don't balance."""

    due: int = 0
    unaccounted: tuple[SlotKey, ...] = ()
    unscheduled: tuple[SlotKey, ...] = ()


Spans = Mapping[UUID, Span]


def settled_ends(periods: Iterable[Period], now_ms: int) -> dict[UUID, int]:
    """Per monitor the moment up to which its slots have had all the time they may take."""
    ends: dict[UUID, int] = {}
    for period in periods:
        monitor_id = period.cadence.monitor_id
        ends[monitor_id] = min(ends.get(monitor_id, now_ms), period.settled_until(now_ms))
    return ends


def spans_since(periods: Iterable[Period], after_ms: int, now_ms: int) -> dict[UUID, Span]:
    """From ``after_ms`` on, as far as slots are settled; monitors with nothing settled since are left out."""
    ends = settled_ends(periods, now_ms)
    return {monitor_id: Span(after_ms, end) for monitor_id, end in ends.items() if end > after_ms}


def latest_spans(periods: Iterable[Period], length_ms: int, now_ms: int) -> dict[UUID, Span]:
    """The last ``length_ms`` of each monitor that are settled: for slow monitors that is a while ago."""
    return {monitor_id: Span(end - length_ms, end) for monitor_id, end in settled_ends(periods, now_ms).items()}


def expected(periods: Iterable[Period], spans: Spans) -> Counter[Place]:
    """How many slots were due within the spans, per monitor and region."""
    counts: Counter[Place] = Counter()
    for period in periods:
        if span := spans.get(period.cadence.monitor_id):
            number = period.count(span.after_ms, span.until_ms)
            for region in period.regions:
                counts[period.cadence.monitor_id, region] += number
    return counts


def suspects(
    periods: Iterable[Period], spans: Spans, due: Mapping[Place, int], stored: Mapping[Place, int]
) -> set[UUID]:
    """The monitors to look at slot by slot.

    Those whose numbers differ, and those whose cadence changed within the span: there a slot too many (dispatched a
    moment after a pause) could hide a missing one.
    """
    unequal = {place[0] for place in due.keys() | stored.keys() if due.get(place, 0) != stored.get(place, 0)}
    changed = {
        period.cadence.monitor_id
        for period in periods
        if (span := spans.get(period.cadence.monitor_id))
        and (period.cadence.starts_at_ms > span.after_ms or period.ends_at_ms is not None)
    }
    return unequal | changed


def differences(
    periods: Iterable[Period], spans: Spans, stored: Collection[SlotKey]
) -> tuple[tuple[SlotKey, ...], tuple[SlotKey, ...]]:
    """Slots that were due and have nothing stored, and stored ones that were not due; in order of time."""
    due = {
        SlotKey(period.cadence.monitor_id, region, slot)
        for period in periods
        if (span := spans.get(period.cadence.monitor_id))
        for slot in period.slots(span.after_ms, span.until_ms)
        for region in period.regions
    }
    found = set(stored)
    return tuple(sorted(due - found, key=_in_time)), tuple(sorted(found - due, key=_in_time))


def _in_time(key: SlotKey) -> tuple[int, UUID, str]:
    return key.slot_ms, key.monitor_id, key.region
