"""What is said of an incident: the record that every channel renders, and its text in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from shared.domain.comparison import well_formed


class Event(StrEnum):
    """``type`` of a notification. Names are public: add, never rename."""

    OPENED = "incident.opened"
    ACKNOWLEDGED = "incident.acknowledged"
    RESOLVED = "incident.resolved"
    REMINDER = "incident.reminder"
    PLATFORM_ALERT = "platform.alert"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """An incident as it stood when the notification was made."""

    id: UUID
    kind: str
    state: str
    severity: str
    cause: str
    message: str
    started_at: datetime
    opened_at: datetime
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None


@dataclass(frozen=True, slots=True)
class MonitorFacts:
    """``url`` is what is checked, as far as it has an address; without its secrets."""

    id: UUID
    name: str
    kind: str
    url: str | None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotificationData:
    """Everything is null in a test; a platform's incident has no monitor and no result."""

    incident: IncidentFacts | None = None
    monitor: MonitorFacts | None = None
    result: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """One message; its fields are the body of a webhook. ``result`` is a ``ResultDocument``."""

    type: Event
    timestamp: datetime
    data: NotificationData = NotificationData()


@dataclass(frozen=True, slots=True)
class Words:
    """A notification in plain words: a title, and either facts or the text of a template."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    body: str | None = None

    @property
    def lines(self) -> str:
        """Everything below the title."""
        return self.body if self.body is not None else "\n".join(f"{name}: {value}" for name, value in self.facts)

    @property
    def text(self) -> str:
        return f"{self.title}\n{self.lines}" if self.lines else self.title


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_PREFIXES = {Event.ACKNOWLEDGED: "ACKNOWLEDGED", Event.RESOLVED: "RESOLVED", Event.TEST: "TEST"}
TITLE_LIMIT = 250
FACT_LIMIT = 600


def printable(text: str) -> str:
    """Text that every service takes: no lone surrogates; control characters are replaced, line breaks kept."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", well_formed(text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def words_of(notification: Notification) -> Words:
    """The default text. Titles begin with what has happened, since many devices show nothing else."""
    incident, monitor = notification.data.incident, notification.data.monitor
    if incident is None:
        return Words("TEST: this channel works", (("Note", "Sent by hand; nothing is wrong."),))
    subject = monitor.name if monitor else incident.message
    title = shortened(f"{_prefix(notification.type, incident)}: {one_line(subject)}", TITLE_LIMIT)
    facts = [*_target(monitor), *_history(notification, incident)]
    kept = tuple((name, shortened(printable(value), FACT_LIMIT)) for name, value in facts if value)
    return Words(title, kept)


def _prefix(event: Event, incident: IncidentFacts) -> str:
    if incident.state == "resolved":
        return "RESOLVED"
    if event is Event.PLATFORM_ALERT:
        return "PLATFORM"
    if event is Event.REMINDER:
        return f"STILL {incident.severity.upper()}"
    return _PREFIXES.get(event, incident.severity.upper())


def _target(monitor: MonitorFacts | None) -> list[tuple[str, str]]:
    if monitor is None:
        return []
    return [("Monitor", monitor.name), ("Target", monitor.url or "")]


def _history(notification: Notification, incident: IncidentFacts) -> list[tuple[str, str]]:
    facts = [
        ("Cause", incident.cause),
        ("Message", incident.message),
        ("Since", moment(incident.started_at)),
        ("Acknowledged by", incident.acknowledged_by or ""),
    ]
    if incident.resolved_at:
        facts += [
            ("Resolved", moment(incident.resolved_at)),
            ("Resolved by", incident.resolved_by or ""),
            ("Duration", duration(incident.resolved_at - incident.started_at)),
        ]
    elif notification.type is Event.REMINDER:
        facts.append(("Duration", duration(notification.timestamp - incident.started_at)))
    return facts


def moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(span: timedelta) -> str:
    """The two largest units: ``3 d 4 h``, ``5 min 3 s``, ``0 s``."""
    seconds = max(0, int(span.total_seconds()))
    sizes = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    counts = [
        (seconds % above // size if above else seconds // size, unit) for (unit, size), above in _with_above(sizes)
    ]
    first = next((index for index, (count, _) in enumerate(counts) if count), len(counts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in counts[first : first + 2] if count) or "0 s"


def _with_above(sizes: tuple[tuple[str, int], ...]) -> list[tuple[tuple[str, int], int]]:
    return list(zip(sizes, (0, *(size for _, size in sizes)), strict=False))
