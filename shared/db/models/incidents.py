"""Incidents with their timeline, the history of states, and what workers saw of late."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base, new_id


class Incident(Base):
    """A time in which a monitor was not well. It outlives its monitor on purpose: no foreign key.

    ``held``: whether anybody is told is still being judged; until then there is no message in the outbox. The four
    columns from ``policy_id`` on belong to the escalation.
    """

    __tablename__ = "incidents"
    __table_args__ = (
        CheckConstraint("kind IN ('monitor', 'platform')", name="kind"),
        CheckConstraint("state IN ('open', 'acknowledged', 'resolved')", name="state"),
        CheckConstraint("severity IN ('down', 'degraded')", name="severity"),
        CheckConstraint("(state = 'resolved') = (resolved_at IS NOT NULL)", name="resolved"),
        Index(
            "uq_incidents_open_monitor",
            "monitor_id",
            unique=True,
            postgresql_where=text("state <> 'resolved' AND kind = 'monitor'"),
        ),
        Index(
            "uq_incidents_open_platform",
            "region",
            "worker",
            unique=True,
            postgresql_where=text("state <> 'resolved' AND kind = 'platform'"),
        ),
        Index(None, "organisation_id", "id"),
        Index(None, "monitor_id", "id"),
        Index("ix_incidents_affected_by", "affected_by", postgresql_where=text("affected_by IS NOT NULL")),
        Index("ix_incidents_held", "id", postgresql_where=text("held")),
        Index(
            "ix_incidents_next_alert_at",
            "next_alert_at",
            postgresql_where=text("next_alert_at IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID]
    monitor_id: Mapped[UUID | None]
    kind: Mapped[str]
    state: Mapped[str]
    severity: Mapped[str]
    cause: Mapped[str]
    message: Mapped[str]
    started_at: Mapped[datetime]
    opened_at: Mapped[datetime]
    last_failure_at: Mapped[datetime]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    resolved_at: Mapped[datetime | None]
    resolved_by: Mapped[str | None]
    reopened: Mapped[int] = mapped_column(server_default=text("0"))
    affected_by: Mapped[UUID | None]
    alert_not_before: Mapped[datetime | None]
    silent: Mapped[bool] = mapped_column(server_default=text("false"))
    held: Mapped[bool] = mapped_column(server_default=text("false"))
    worker: Mapped[str] = mapped_column(server_default=text("''"))
    region: Mapped[str] = mapped_column(server_default=text("''"))
    expiry_warning: Mapped[int | None]
    first_result: Mapped[dict[str, Any] | None]
    last_result: Mapped[dict[str, Any] | None]
    policy_id: Mapped[UUID | None]
    next_step: Mapped[int] = mapped_column(server_default=text("0"))
    next_alert_at: Mapped[datetime | None]
    reminders: Mapped[int] = mapped_column(server_default=text("0"))


class IncidentEvent(Base):
    """One line of an incident's timeline."""

    __tablename__ = "incident_events"
    __table_args__ = (
        CheckConstraint(
            "kind IN ('opened', 'reopened', 'acknowledged', 'resolved', 'comment', 'delivery', 'affected', "
            "'released')",
            name="kind",
        ),
        Index(None, "incident_id", "id"),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    organisation_id: Mapped[UUID]
    incident_id: Mapped[UUID] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    kind: Mapped[str]
    actor: Mapped[str | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))


class StatePeriod(Base):
    """A half-open span [starts_at, ends_at) in which a monitor showed one status; uptime is computed from these.

    A span begins where the one before it ended, so that spans of a monitor never overlap. It outlives its monitor.
    """

    __tablename__ = "state_periods"
    __table_args__ = (
        CheckConstraint("ends_at >= starts_at", name="order"),
        Index("uq_state_periods_open", "monitor_id", unique=True, postgresql_where=text("ends_at IS NULL")),
        Index(None, "monitor_id", "starts_at"),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    organisation_id: Mapped[UUID]
    monitor_id: Mapped[UUID]
    status: Mapped[str]
    starts_at: Mapped[datetime]
    ends_at: Mapped[datetime | None]


class WorkerBeat(Base):
    """What a worker saw within a fifth of a second: evidence of minutes, so the table is not even logged."""

    __tablename__ = "worker_beats"
    __table_args__ = (Index(None, "stored_at"), {"prefixes": ["UNLOGGED"]})

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    worker: Mapped[str]
    region: Mapped[str]
    at: Mapped[datetime]
    turned: Mapped[int]
    well: Mapped[int]
    failing: Mapped[int] = mapped_column(server_default=text("0"))
    stored_at: Mapped[datetime]
