"""Whom to tell, when, and what became of each notification."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base, new_id


class Channel(Base):
    """A way to people. ``config`` holds secrets only in sealed form; ``failing_since`` is null while it works."""

    __tablename__ = "channels"
    __table_args__ = (Index(None, "organisation_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    kind: Mapped[str]
    config: Mapped[dict[str, Any]]
    is_default: Mapped[bool]
    templates: Mapped[dict[str, Any]]
    fallback_channel_id: Mapped[UUID | None] = mapped_column(ForeignKey("channels.id", ondelete="SET NULL"))
    failing_since: Mapped[datetime | None]
    last_error: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class AlertPolicy(Base):
    """``spec`` is an ``AlertPolicySpec``; ``priority`` is copied out of it for sorting."""

    __tablename__ = "alert_policies"
    __table_args__ = (Index(None, "organisation_id", "priority", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    priority: Mapped[int]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class Delivery(Base):
    """One notification through one channel.

    It outlives its channel and its incident on purpose (no foreign keys). ``number`` orders those of one incident
    and channel; ``episode`` is the event that opened the incident since it was last well. As long as there is no
    outcome, ``queue_after`` says when it is handed to the queue (again), and ``queued`` counts how often.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        CheckConstraint(
            "state IN ('pending', 'sending', 'retrying', 'delivered', 'failed', 'skipped')", name="state"
        ),
        CheckConstraint("(queue_after IS NULL) = (settled_at IS NOT NULL)", name="queued_until_settled"),
        Index(None, "incident_id", "channel_id", "number"),
        Index(None, "channel_id", "id"),
        Index(None, "queue_after", postgresql_where=text("queue_after IS NOT NULL")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    number: Mapped[int] = mapped_column(Identity(always=True))
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    incident_id: Mapped[UUID | None]
    episode: Mapped[int | None]
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    event: Mapped[str]
    channel_id: Mapped[UUID]
    channel_name: Mapped[str]
    channel_kind: Mapped[str]
    fallback_of: Mapped[UUID | None]
    notification: Mapped[dict[str, Any]]
    state: Mapped[str]
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    possibly_duplicated: Mapped[bool] = mapped_column(server_default=text("false"))
    status_code: Mapped[int | None]
    response: Mapped[str | None]
    error: Mapped[str | None]
    created_at: Mapped[datetime]
    claimed_at: Mapped[datetime | None]
    not_before: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]
    queue_after: Mapped[datetime | None]
    queued: Mapped[int] = mapped_column(server_default=text("0"))
