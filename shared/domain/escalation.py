"""From a policy and the state of an incident to what is due now, and when to look again. Pure.

A step is due at the opening plus its delay, or when its quiet hours end. All of them, over all repetitions, form
one list in the order of time; ``Ladder.steps_done`` counts how many of it were taken. So a step that waits for
the morning does not hold up the one behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID

from shared.domain.alert_policy import DEFAULT, AlertPolicySpec, QuietHours, Step, zone
from shared.domain.clock import to_datetime, to_milliseconds
from shared.domain.notification import Event

_MOST_DAYS = 8


@dataclass(frozen=True, slots=True)
class Ladder:
    """How far an incident has come since it was opened (or opened again) at ``started_ms``."""

    started_ms: int
    steps_done: int = 0
    reminders_done: int = 0
    is_open: bool = True
    """Neither acknowledged nor resolved."""


@dataclass(frozen=True, slots=True)
class Due:
    """Tell this channel now. ``key`` names the step, so that it is taken once however often we look."""

    channel_id: UUID
    event: Event
    key: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is due now, how far that brings the ladder, and when the next thing is due."""

    due: tuple[Due, ...]
    steps_done: int
    reminders_done: int
    next_alert_ms: int | None


@dataclass(frozen=True, slots=True)
class _Occurrence:
    at_ms: int
    round: int
    index: int
    step: Step

    @property
    def key(self) -> str:
        return f"step {self.index + 1}" if self.round == 0 else f"step {self.index + 1} repeat {self.round}"


def evaluate(policy: AlertPolicySpec, defaults: Collection[UUID], ladder: Ladder, now_ms: int) -> Plan:
    """What ``policy`` wants now. ``defaults`` are the channels that "default" stands for.

    Each channel is told once per look, also when the look comes late and several steps are due together.
    """
    if not ladder.is_open:
        return Plan((), ladder.steps_done, ladder.reminders_done, None)
    occurrences = _occurrences(policy, ladder.started_ms)
    taken = occurrences[: ladder.steps_done]
    ready = [each for each in occurrences[ladder.steps_done :] if each.at_ms <= now_ms]
    reminders = _reminders_passed(policy, ladder, now_ms)
    due = _steps(ready, taken, defaults)
    if reminders > ladder.reminders_done:
        due |= {
            key: value for key, value in _reminders(taken, defaults, reminders, now_ms).items() if key not in due
        }
    done = ladder.steps_done + len(ready)
    upcoming = [each.at_ms for each in occurrences[done : done + 1]]
    if policy.reminder_seconds:
        upcoming.append(ladder.started_ms + (reminders + 1) * policy.reminder_seconds * 1000)
    return Plan(tuple(due.values()), done, reminders, min(upcoming, default=None))


def channels_of(step: Step, defaults: Iterable[UUID]) -> list[UUID]:
    """The channels of a step, each once."""
    return list(dict.fromkeys(defaults if step.channels == DEFAULT else step.channels))


def quiet_until(quiet: QuietHours | None, moment_ms: int) -> int:
    """The moment itself, or when the quiet hours that hold at it are over."""
    if quiet is None:
        return moment_ms
    for _ in range(_MOST_DAYS):
        end_ms = _quiet_end(quiet, moment_ms)
        if end_ms is None:
            return moment_ms
        moment_ms = end_ms
    return moment_ms


def _quiet_end(quiet: QuietHours, moment_ms: int) -> int | None:
    here = to_datetime(moment_ms).astimezone(zone(quiet.timezone)).date()
    for day in (here - timedelta(days=1), here):
        if day.weekday() not in quiet.weekdays:
            continue
        last = day if quiet.ends > quiet.starts else day + timedelta(days=1)
        starts_ms, ends_ms = _instant(quiet, day, start=True), _instant(quiet, last, start=False)
        if starts_ms <= moment_ms < ends_ms:
            return ends_ms
    return None


def _instant(quiet: QuietHours, day: date, *, start: bool) -> int:
    # Of an hour that clocks show twice the first one counts, so that quiet hours rather end early; an hour that
    # is skipped is passed when clocks jump over it.
    local = datetime.combine(day, quiet.starts if start else quiet.ends, zone(quiet.timezone))
    return to_milliseconds(local)


def _occurrences(policy: AlertPolicySpec, started_ms: int) -> list[_Occurrence]:
    length = policy.steps[-1].delay_seconds + policy.repeat_after_seconds
    found = [
        _Occurrence(_due_ms(step, started_ms + repetition * length * 1000), repetition, index, step)
        for repetition in range(policy.repeat + 1)
        for index, step in enumerate(policy.steps)
    ]
    return sorted(found, key=lambda each: (each.at_ms, each.round, each.index))


def _due_ms(step: Step, base_ms: int) -> int:
    return quiet_until(step.quiet_hours, base_ms + step.delay_seconds * 1000)


def _steps(
    ready: Iterable[_Occurrence], taken: Iterable[_Occurrence], defaults: Collection[UUID]
) -> dict[UUID, Due]:
    told = {channel for each in taken for channel in channels_of(each.step, defaults)}
    due: dict[UUID, Due] = {}
    for each in ready:
        for channel in channels_of(each.step, defaults):
            event = Event.REMINDER if channel in told else Event.OPENED
            due.setdefault(channel, Due(channel, event, each.key))
    return due


def _reminders_passed(policy: AlertPolicySpec, ladder: Ladder, now_ms: int) -> int:
    """How many reminders should have gone out by now: after a pause of ours one stands for all of them."""
    if not policy.reminder_seconds:
        return ladder.reminders_done
    return max(ladder.reminders_done, (now_ms - ladder.started_ms) // (policy.reminder_seconds * 1000))


def _reminders(
    taken: Iterable[_Occurrence], defaults: Collection[UUID], number: int, now_ms: int
) -> dict[UUID, Due]:
    """Whoever was told, except where it is quiet now."""
    awake = [each.step for each in taken if quiet_until(each.step.quiet_hours, now_ms) == now_ms]
    channels = dict.fromkeys(channel for step in awake for channel in channels_of(step, defaults))
    return {channel: Due(channel, Event.REMINDER, f"reminder {number}") for channel in channels}
