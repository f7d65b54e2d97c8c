"""Monitors, the spans in which their cadence stood still, and where each of them stands now."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Double, ForeignKey, Index, Uuid, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base, new_id


class Monitor(Base):
    """What its owner wrote. ``check_spec`` holds secrets only in sealed form."""

    __tablename__ = "monitors"
    __table_args__ = (
        CheckConstraint("interval_seconds BETWEEN 5 AND 86400", name="interval"),
        Index(None, "organisation_id", "id"),
        Index(None, "parents", postgresql_using="gin"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    kind: Mapped[str]
    interval_seconds: Mapped[int]
    timeout_seconds: Mapped[float] = mapped_column(Double())
    regions: Mapped[list[str]]
    tags: Mapped[dict[str, str]]
    retries: Mapped[int]
    retry_delay_seconds: Mapped[float] = mapped_column(Double())
    failure_threshold: Mapped[int]
    recovery_threshold: Mapped[int]
    region_quorum: Mapped[int | None]
    flap_window_seconds: Mapped[int] = mapped_column(server_default=text("300"))
    parents: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid()), server_default=text("'{}'"))
    check_spec: Mapped[dict[str, Any]]
    revision: Mapped[int]
    paused_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class SchedulePeriod(Base):
    """A half-open span [starts_at, ends_at) of unchanged cadence; the audit computes due slots from it.

    It outlives its monitor on purpose (no foreign key): what was due before a deletion stays due.
    """

    __tablename__ = "schedule_periods"
    __table_args__ = (
        CheckConstraint("ends_at >= starts_at", name="order"),
        Index("uq_schedule_periods_open", "monitor_id", unique=True, postgresql_where=text("ends_at IS NULL")),
        Index(None, "monitor_id", "starts_at"),
        Index(None, "ends_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID]
    monitor_id: Mapped[UUID]
    revision: Mapped[int]
    interval_ms: Mapped[int]
    regions: Mapped[list[str]]
    starts_at: Mapped[datetime]
    ends_at: Mapped[datetime | None]


class MonitorState(Base):
    """One row per monitor, rewritten by each batch of results; half of each page is kept free for that.

    ``status`` is the truth; a pause or a maintenance window lies over it as ``overlay``. ``announced`` is what the
    incidents said last. ``regions`` holds a ``RegionState`` for each.
    """

    __tablename__ = "monitor_state"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'up', 'degraded', 'down', 'unknown', 'maintenance')", name="status"),
        CheckConstraint("announced IN ('up', 'degraded', 'down')", name="announced"),
        CheckConstraint("overlay IN ('paused', 'maintenance')", name="overlay"),
        CheckConstraint("(overlay IS NULL) = (overlay_since IS NULL)", name="since"),
        {"postgresql_with": {"fillfactor": 50}},
    )

    monitor_id: Mapped[UUID] = mapped_column(ForeignKey("monitors.id", ondelete="CASCADE"), primary_key=True)
    organisation_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(server_default=text("'pending'"))
    status_since: Mapped[datetime]
    last_slot_at: Mapped[datetime | None]
    consecutive_failures: Mapped[int] = mapped_column(server_default=text("0"))
    consecutive_successes: Mapped[int] = mapped_column(server_default=text("0"))
    regions: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    announced: Mapped[str] = mapped_column(server_default=text("'up'"))
    overlay: Mapped[str | None]
    overlay_since: Mapped[datetime | None]
    last_result: Mapped[dict[str, Any] | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
