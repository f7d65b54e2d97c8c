"""What an incident looks like to those who are told of it, and the rows that carry it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import structlog
from pydantic import ValidationError

from shared.channels.template import TemplateFailedError, Templates, apply
from shared.contracts.documents import encode
from shared.db.base import new_id
from shared.db.models import Channel, Delivery
from shared.db.repositories.escalations import IncidentRow
from shared.domain.notification import (
    Event,
    IncidentFacts,
    MonitorFacts,
    Notification,
    NotificationData,
    Words,
    words_of,
)
from shared.domain.redaction import scrub
from shared.domain.url import parse_url, split_userinfo

log = structlog.get_logger(__name__)

PLATFORM = "platform"
_FOLLOW_UPS = frozenset({Event.ACKNOWLEDGED, Event.RESOLVED, Event.REMINDER})
_STATES = {Event.ACKNOWLEDGED: "acknowledged", Event.RESOLVED: "resolved"}


def notification_of(incident: IncidentRow, event: Event, at: datetime) -> Notification:
    """The incident as ``event`` left it: by the time this is made it may have gone on."""
    state = _STATES.get(event, "open")
    facts = IncidentFacts(
        id=incident.id,
        kind=incident.kind,
        state=state,
        severity=incident.severity,
        cause=incident.cause,
        message=incident.message,
        started_at=incident.started_at,
        opened_at=incident.opened_at,
        acknowledged_at=incident.acknowledged_at if state != "open" else None,
        acknowledged_by=incident.acknowledged_by if state != "open" else None,
        resolved_at=incident.resolved_at if state == "resolved" else None,
        resolved_by=incident.resolved_by if state == "resolved" else None,
    )
    kind = Event.PLATFORM_ALERT if incident.kind == PLATFORM else event
    result = incident.last_result or incident.first_result
    return Notification(kind, at, NotificationData(facts, _monitor_of(incident), result))


def _monitor_of(incident: IncidentRow) -> MonitorFacts | None:
    if incident.monitor_id is None or incident.monitor_name is None:
        return None
    return MonitorFacts(
        incident.monitor_id,
        incident.monitor_name,
        incident.monitor_kind or "",
        target_of(incident.check_spec or {}),
        incident.tags or {},
    )


def target_of(check: Mapping[str, Any]) -> str | None:
    """What a stored check looks at, without user, password and secret parameters; None where it has no address."""
    if isinstance(url := check.get("url"), str):
        try:
            return parse_url(split_userinfo(url)[0]).redacted()
        except ValueError:
            return scrub(url)
    host, port = check.get("host"), check.get("port")
    if host is not None:
        return f"{host}:{port}" if port else str(host)
    return check.get("name")


def delivery_rows(
    incident: IncidentRow,
    notification: Notification,
    channels: Iterable[tuple[Channel, str]],
    *,
    episode: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """New deliveries of one notification, to channels each with a tag.

    The tag says why: with incident and channel it is what makes a notification happen once.
    """
    common = {
        "organisation_id": incident.organisation_id,
        "incident_id": incident.id,
        "episode": episode,
        "event": notification.type.value,
        "notification": stored(notification),
        "state": "pending",
        "created_at": now,
        "queue_after": now,
    }
    return [
        {
            **common,
            "id": new_id(),
            "dedupe_key": dedupe_key(incident.id, tag, channel.id),
            "channel_id": channel.id,
            "channel_name": channel.name,
            "channel_kind": channel.kind,
        }
        for channel, tag in channels
    ]


def dedupe_key(incident_id: UUID, tag: str, channel_id: UUID) -> str:
    return f"{incident_id}:{tag}:{channel_id}"


def stored(notification: Notification) -> Any:
    """As PostgreSQL takes it."""
    return msgspec.json.decode(encode(notification))


def notification_from(document: Any) -> Notification:
    """A stored notification; raises ``msgspec.ValidationError``."""
    return msgspec.convert(document, Notification)


def words_for(channel: Channel, notification: Notification) -> Words:
    """By the channel's templates; by the default text when they fail, which must cost nobody an alert."""
    try:
        return apply(Templates.model_validate(channel.templates), notification)
    except (TemplateFailedError, ValidationError) as error:
        log.warning("a template failed, the default text is sent", channel=str(channel.id), reason=str(error))
        return words_of(notification)


def is_follow_up(row: Delivery) -> bool:
    """Whether this is only for those who were told of the opening."""
    if row.event == Event.PLATFORM_ALERT:
        incident = row.notification["data"]["incident"]
        return incident is not None and incident["state"] != "open"
    return row.event in _FOLLOW_UPS


_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_SAMPLE = IncidentFacts(
    UUID(int=1), "monitor", "open", "down", "timeout", "timed out after 10 s", started_at=_MOMENT, opened_at=_MOMENT
)
_MONITOR = MonitorFacts(UUID(int=2), "Shop", "http", "https://shop.example/", {})
SAMPLES = (
    Notification(Event.TEST, _MOMENT),
    Notification(Event.OPENED, _MOMENT, NotificationData(_SAMPLE, _MONITOR, {})),
    Notification(Event.PLATFORM_ALERT, _MOMENT, NotificationData(_SAMPLE, None, None)),
)
"""What a template has to render before it is taken."""
