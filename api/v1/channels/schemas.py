"""Channels and their deliveries as clients write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from shared.channels.registry import Kind
from shared.channels.template import Templates
from shared.db.models import Channel, Delivery
from shared.domain.channel import ChannelFields
from shared.services.channels import Attempt, ChannelService

EXAMPLES: dict[str, Any] = {
    "webhook": {
        "summary": "A webhook, signed",
        "value": {
            "name": "ops",
            "kind": "webhook",
            "config": {
                "url": "https://ops.example/hooks/tocsin",
                "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            },
        },
    },
    "email": {
        "summary": "Mail over your own server",
        "value": {
            "name": "on call",
            "kind": "email",
            "config": {
                "to": ["oncall@shop.example"],
                "smtp": {
                    "host": "mail.shop.example",
                    "port": 587,
                    "security": "starttls",
                    "username": "tocsin",
                    "password": "correct horse",
                    "sender": "tocsin@shop.example",
                },
            },
        },
    },
    "slack": {
        "summary": "Slack",
        "value": {
            "name": "#alerts",
            "kind": "slack",
            "config": {"url": "https://hooks.slack.com/services/T000/B000/XXXX"},
        },
    },
}
_TEMPLATES = Field(
    description="Your own words in Liquid: `monitor`, `incident`, `result`, `event`, `time`, `title`, `text`."
)


class NewChannel(ChannelFields):
    """What `config` holds depends on `kind`; see the guide to channels."""

    kind: Kind
    templates: Annotated[Templates, _TEMPLATES] = Templates()


class ChannelChange(ChannelFields):
    """A channel keeps its kind."""

    templates: Annotated[Templates, _TEMPLATES] = Templates()


class ChannelRead(NewChannel):
    """`destination` says where it leads, without secrets; `failing_since` is null while it works."""

    id: UUID
    destination: str | None
    failing_since: datetime | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime


class ChannelPage(BaseModel):
    items: list[ChannelRead]
    next_cursor: str | None


class TestRead(BaseModel):
    """What a test came to. `response` is the beginning of what the service answered."""

    outcome: Literal["delivered", "failed"]
    delivery_id: UUID
    status_code: int | None
    response: str | None
    error: str | None
    duration_ms: float


class DeliveryRead(BaseModel):
    """One notification through this channel. `possibly_duplicated`: an answer was lost, so it was sent again."""

    id: UUID
    incident_id: UUID | None
    event: str
    state: Literal["pending", "sending", "retrying", "delivered", "failed", "skipped"]
    attempts: int
    possibly_duplicated: bool
    status_code: int | None
    response: str | None
    error: str | None
    fallback_of: UUID | None
    created_at: datetime
    next_attempt_at: datetime | None
    settled_at: datetime | None


class DeliveryPage(BaseModel):
    items: list[DeliveryRead]
    next_cursor: str | None


def channel_document(channel: Channel, service: ChannelService) -> dict[str, Any]:
    return {
        "id": channel.id,
        "name": channel.name,
        "kind": channel.kind,
        "default": channel.is_default,
        "fallback_channel_id": channel.fallback_channel_id,
        "config": service.masked(channel),
        "templates": {name: channel.templates.get(name) for name in Templates.model_fields},
        "destination": service.destination(channel),
        "failing_since": channel.failing_since,
        "last_error": channel.last_error,
        "created_at": channel.created_at,
        "updated_at": channel.updated_at,
    }


def editable(channel: Channel, service: ChannelService) -> dict[str, Any]:
    """What a change is merged into."""
    document = channel_document(channel, service)
    return {name: document[name] for name in ChannelChange.model_fields}


def test_document(attempt: Attempt) -> dict[str, Any]:
    return {
        "outcome": attempt.outcome,
        "delivery_id": attempt.delivery_id,
        "status_code": attempt.receipt.status_code,
        "response": attempt.receipt.excerpt,
        "error": attempt.error,
        "duration_ms": attempt.duration_ms,
    }


def delivery_document(row: Delivery) -> dict[str, Any]:
    shown = {name: getattr(row, name) for name in DeliveryRead.model_fields if name != "next_attempt_at"}
    return {**shown, "next_attempt_at": row.not_before}
