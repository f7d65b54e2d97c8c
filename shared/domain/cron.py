"""Cron expressions of five fields, with the rules of Debian's cron(8) on the days on which clocks change.

A job at fixed times runs once when an hour is repeated, and right after the gap when its time is skipped; one whose
minute or hour begins with ``*`` follows elapsed time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from shared.domain.clock import to_datetime, to_milliseconds

MAX_EXPRESSION = 200
HORIZON = timedelta(days=8 * 366)
"""A schedule without an occurrence in this time has none: even 29 February comes within eight years."""


class ScheduleError(ValueError):
    """A schedule that cannot be read or never happens; the message is for the one who wrote it."""


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this IANA name; raises ``ScheduleError``."""
    # Asked of the list: ZoneInfo itself takes what it is given for the name of a file.
    if name not in _zones():
        raise ScheduleError(f"there is no time zone {name[:60]!r}: give an IANA name such as Europe/Berlin")
    return ZoneInfo(name)


def check_cron(expression: str, zone: ZoneInfo, now_ms: int) -> None:
    """Raise ``ScheduleError`` for what is no expression, or never happens. Bounded in time."""
    if next_cron_ms(expression, zone, now_ms) is None:
        raise ScheduleError(f"{expression!r} has no occurrence in the next eight years")


def next_cron_ms(expression: str, zone: ZoneInfo, after_ms: int) -> int | None:
    """The first occurrence after a moment, or None when there is none in eight years; raises ``ScheduleError``."""
    after = to_datetime(after_ms).astimezone(zone)
    # Where the clock was set back, the local times behind "after" include some that are over by then.
    for moment in _simulation(expression, after):
        if moment - after > HORIZON:
            return None
        found = to_milliseconds(moment.astimezone(UTC))
        if found > after_ms:
            return found
    return None


def local_starts(expression: str, after: datetime) -> Iterator[datetime]:
    """Occurrences as the local clock shows them, after a naive local time; raises ``ScheduleError``."""
    for moment in _simulation(expression, after):
        if moment - after > HORIZON:
            return
        yield moment


def _simulation(expression: str, after: datetime) -> CronSim:
    if len(expression) > MAX_EXPRESSION:
        raise ScheduleError(f"a cron expression has at most {MAX_EXPRESSION} characters")
    if len(expression.split()) != 5:
        raise ScheduleError("a cron expression has five fields: minute, hour, day of month, month, day of week")
    try:
        return CronSim(expression, after)
    except (CronSimError, AssertionError, TypeError) as error:
        reason = str(error) or "a step over something that is no number"
        raise ScheduleError(f"{expression!r} is no cron expression: {reason[:1].lower()}{reason[1:]}") from error
