"""PagerDuty's Events API: an incident of ours opens, acknowledges and resolves one of theirs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from shared.channels.http import HttpMessage, HttpUrl, json_body, post
from shared.channels.record import ChannelKind, Outgoing
from shared.channels.style import is_over
from shared.domain.notification import Event, Notification, one_line, shortened
from shared.domain.spec import Secret, Strict

SUMMARY_LIMIT = 1024


class PagerDutyConfig(Strict):
    """``routing_key`` is the integration key of a service; ``base_url`` the EU's, for example."""

    routing_key: Annotated[str, Field(min_length=8, max_length=100, pattern=r"^[\x21-\x7e]+$"), Secret()]
    base_url: HttpUrl = "https://events.pagerduty.com"


def render(config: PagerDutyConfig, outgoing: Outgoing) -> HttpMessage:
    notification, words = outgoing.notification, outgoing.words
    incident, monitor = notification.data.incident, notification.data.monitor
    event: dict[str, Any] = {
        "routing_key": config.routing_key,
        "event_action": _action(notification),
        # Theirs belongs to ours for good, so events that come twice or late change nothing.
        "dedup_key": str(incident.id) if incident else f"test-{outgoing.id}",
    }
    if event["event_action"] == "trigger":
        event["payload"] = {
            "summary": shortened(one_line(words.title), SUMMARY_LIMIT),
            "source": shortened(one_line(monitor.name), 255) if monitor else "tocsin",
            "severity": _severity(notification),
            "timestamp": (incident.started_at if incident else notification.timestamp).isoformat(),
            "custom_details": {"text": words.body} if words.body is not None else dict(words.facts),
        }
    return HttpMessage(f"{config.base_url.rstrip('/')}/v2/enqueue", json_body(event))


def _action(notification: Notification) -> str:
    if is_over(notification):
        return "resolve"
    return "acknowledge" if notification.type is Event.ACKNOWLEDGED else "trigger"


def _severity(notification: Notification) -> str:
    incident = notification.data.incident
    if incident is None:
        return "info"
    return "warning" if incident.severity == "degraded" else "critical"


CHANNEL = ChannelKind("pagerduty", PagerDutyConfig, render, post, lambda config: config.base_url)
