"""When something recurs: rules of RFC 5545 and cron expressions, in local wall time, resolved per occurrence.

A stored offset would be an hour off for half of the year, so an occurrence is a pair of local times that is turned
into instants when its day is known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule, rrulestr
from pydantic import Field, model_validator

from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.cron import HORIZON, MAX_EXPRESSION, ScheduleError, local_starts, zone_of
from shared.domain.moment import LocalDateTime
from shared.domain.spec import Strict

Span = tuple[int, int]
"""Milliseconds since 1970, half-open: from the first up to, and without, the second."""

MAX_MINUTES = 14 * 24 * 60
_CLOSEST_STARTS = timedelta(hours=1)
_FIRST_YEAR, _LAST_YEAR = 2000, 2100
# The calendar repeats after 400 years, to the weekday. A rule that matches nothing is walked up to the year 9999,
# which takes seconds, so the walk is moved there: from the 97th century on it is short.
_SHIFT_YEARS = 7600
_PARTS = {
    "FREQ": re.compile(r"DAILY|WEEKLY|MONTHLY|YEARLY"),
    "INTERVAL": re.compile(r"[1-9][0-9]{0,2}"),
    "COUNT": re.compile(r"[1-9][0-9]{0,3}"),
    "UNTIL": re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?"),
    "BYDAY": re.compile(r"([+-]?[1-5]?(MO|TU|WE|TH|FR|SA|SU))(,[+-]?[1-5]?(MO|TU|WE|TH|FR|SA|SU)){0,30}"),
    "BYMONTHDAY": re.compile(r"-?[1-9][0-9]?(,-?[1-9][0-9]?){0,30}"),
    "BYMONTH": re.compile(r"[1-9][0-9]?(,[1-9][0-9]?){0,11}"),
    "BYSETPOS": re.compile(r"-?[1-9][0-9]?(,-?[1-9][0-9]?){0,9}"),
    "WKST": re.compile(r"MO|TU|WE|TH|FR|SA|SU"),
}


class Recurrence(Strict):
    """Spans of ``duration_minutes`` on the clock of ``timezone``: by cron, or by rule from ``first_start`` on.

    An hour that a clock repeats belongs to a span as a whole; the part of a span that a clock skips does not exist.
    """

    cron: Annotated[str | None, Field(max_length=MAX_EXPRESSION)] = None
    rrule: Annotated[str | None, Field(max_length=500)] = None
    first_start: LocalDateTime | None = None
    duration_minutes: Annotated[int, Field(ge=1, le=MAX_MINUTES)]
    timezone: Annotated[str, Field(max_length=100)]

    @model_validator(mode="after")
    def _readable(self) -> Self:
        zone_of(self.timezone)
        if (self.cron is None) == (self.rrule is None):
            raise ValueError("cron: give either cron or rrule")
        if (self.rrule is None) != (self.first_start is None):
            raise ValueError("first_start: an rrule begins at this local time; cron has none")
        if self.first_start and not _FIRST_YEAR <= self.first_start.year <= _LAST_YEAR:
            raise ValueError(f"first_start: the year is from {_FIRST_YEAR} to {_LAST_YEAR}")
        if self.first_start and (self.first_start.second or self.first_start.microsecond):
            raise ValueError("first_start: it has whole minutes")
        return self

    def spans(self, since_ms: int, until_ms: int) -> Iterator[Span]:
        """The spans that overlap ``[since_ms, until_ms)`` in order; raises ``ScheduleError``."""
        zone, length = zone_of(self.timezone), timedelta(minutes=self.duration_minutes)
        # A day more on both sides than any change of a clock can move a local time.
        since = _local(since_ms, zone) - length - timedelta(days=1)
        until = _local(until_ms, zone) + timedelta(days=1)
        for start in itertools.takewhile(lambda start: start < until, self._starts(since, zone)):
            span = _first_instant(start, zone), _last_instant(start + length, zone)
            if span[0] < span[1] and span[0] < until_ms and span[1] > since_ms:
                yield span

    def check(self, now_ms: int) -> None:
        """Raise ``ScheduleError`` for a rule that cannot be read, never happens again, or happens all the time."""
        zone = zone_of(self.timezone)
        since = _local(now_ms, zone) - timedelta(minutes=self.duration_minutes)
        if self.first_start:
            since = max(since, self.first_start)
        near = (start for start in self._starts(since, zone) if start - since < HORIZON)
        starts = list(itertools.islice(near, 50))
        if not starts:
            raise ScheduleError("it has no occurrence in the next eight years")
        if any(later - earlier < _CLOSEST_STARTS for earlier, later in itertools.pairwise(starts)):
            raise ScheduleError("it begins more often than once an hour: write one longer window")

    def _starts(self, since: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        if self.cron is not None:
            return local_starts(self.cron, since - timedelta(minutes=1))
        assert self.rrule is not None
        assert self.first_start is not None
        first = self.first_start
        shift = timedelta(days=_SHIFT_YEARS // 400 * 146_097)
        rule = _rule(self.rrule, first + shift, zone, shift)
        return (start - shift for start in rule if start - shift >= since)


def _rule(text: str, first: datetime, zone: ZoneInfo, shift: timedelta) -> rrule:
    parts = _parts(text)
    if until := parts.pop("UNTIL", None):
        parts["UNTIL"] = (_until(until, zone) + shift).strftime("%Y%m%dT%H%M%S")
    try:
        rule = rrulestr(";".join(f"{name}={value}" for name, value in parts.items()), dtstart=first)
    except ValueError as error:
        raise ScheduleError(f"rrule: {error}") from error
    assert isinstance(rule, rrule)
    return rule


def _parts(text: str) -> dict[str, str]:
    """The parts of a rule. Those that name hours, minutes or seconds are refused: ``first_start`` has the time."""
    parts: dict[str, str] = {}
    for part in text.upper().removeprefix("RRULE:").split(";"):
        name, _, value = part.partition("=")
        if name not in _PARTS or name in parts or not _PARTS[name].fullmatch(value):
            raise ScheduleError(
                f"rrule: {part[:40]!r} can't be used here: known are {', '.join(_PARTS)}, each once"
            )
        parts[name] = value
    if "FREQ" not in parts:
        raise ScheduleError("rrule: it needs a FREQ: DAILY, WEEKLY, MONTHLY or YEARLY")
    if parts["FREQ"] in ("DAILY", "WEEKLY") and re.search(r"[1-5]", parts.get("BYDAY", "")):
        raise ScheduleError("rrule: BYDAY counts weekdays (1MO) only in a month or year")
    return parts


def _until(text: str, zone: ZoneInfo) -> datetime:
    """UNTIL on the local clock; a date alone includes the whole day."""
    try:
        if text.endswith("Z"):
            return datetime.strptime(text, "%Y%m%dT%H%M%S%z").astimezone(zone).replace(tzinfo=None)
        if "T" in text:
            return datetime.strptime(text, "%Y%m%dT%H%M%S")  # noqa: DTZ007 a local time on purpose
        return datetime.strptime(f"{text}T235959", "%Y%m%dT%H%M%S")  # noqa: DTZ007 a local time on purpose
    except ValueError as error:
        raise ScheduleError(f"rrule: {text} is no date") from error


def _local(moment_ms: int, zone: ZoneInfo) -> datetime:
    return to_datetime(moment_ms).astimezone(zone).replace(tzinfo=None)


def _first_instant(local: datetime, zone: ZoneInfo) -> int:
    """When the clock first shows this time, or for the first time a later one if it skips it."""
    return _instant(local, zone, fold=0)


def _last_instant(local: datetime, zone: ZoneInfo) -> int:
    """When the clock shows this time for the last time."""
    return _instant(local, zone, fold=1)


def _instant(local: datetime, zone: ZoneInfo, fold: int) -> int:
    moment = to_milliseconds(local.replace(tzinfo=zone, fold=fold))
    if _local(moment, zone) == local:
        return moment
    # Skipped: both readings lie around the change of the clock, which is the moment asked for.
    before, after = (to_milliseconds(local.replace(tzinfo=zone, fold=fold)) for fold in (1, 0))
    while after - before > 1000:
        middle = (before + after) // 2000 * 1000
        if _local(middle, zone) < local:
            before = middle
        else:
            after = middle
    return after


def merged(spans: Iterator[Span] | list[Span]) -> list[Span]:
    """The same time as spans that neither overlap nor touch, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
