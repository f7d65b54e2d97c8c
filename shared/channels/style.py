"""How urgent a notification looks where a service knows colours or priorities."""

from __future__ import annotations

from collections.abc import Callable

from shared.domain.notification import Event, Notification, shortened

RED, AMBER, GREEN, BLUE = 0xD92D20, 0xF79009, 0x12B76A, 0x2E90FA


def is_over(notification: Notification) -> bool:
    incident = notification.data.incident
    return incident is not None and incident.state == "resolved"


def is_calm(notification: Notification) -> bool:
    """Nobody has to do anything now."""
    return is_over(notification) or notification.type in {Event.TEST, Event.ACKNOWLEDGED}


def colour(notification: Notification) -> int:
    """RGB."""
    incident = notification.data.incident
    if is_over(notification):
        return GREEN
    if incident is None or notification.type is Event.ACKNOWLEDGED:
        return BLUE
    return AMBER if incident.severity == "degraded" else RED


def fit(text: str, limit: int, escape: Callable[[str], str]) -> str:
    """The text escaped, and short enough after that: nothing is cut in the middle of an escape."""
    kept = limit
    while len(escaped := escape(shortened(text, kept))) > limit:
        kept -= max(1, (len(escaped) - limit) // 8)
    return escaped
