"""Monitors, the spans in which their cadence stood still, and where each of them stands now."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Double, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base, new_id


class Monitor(Base):
    """What its owner wrote. ``check_spec`` holds secrets only in sealed form."""

    __tablename__ = "monitors"
    __table_args__ = (
        CheckConstraint("interval_seconds BETWEEN 5 AND 86400", name="interval"),
        Index(None, "organisation_id", "id"),
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
    """One row per monitor, rewritten by each batch of results; half of each page is kept free for that."""

    __tablename__ = "monitor_state"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'up', 'degraded', 'down', 'unknown', 'maintenance')", name="status"),
        {"postgresql_with": {"fillfactor": 50}},
    )

    monitor_id: Mapped[UUID] = mapped_column(ForeignKey("monitors.id", ondelete="CASCADE"), primary_key=True)
    organisation_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(server_default=text("'pending'"))
    status_since: Mapped[datetime]
    last_slot_at: Mapped[datetime | None]
    consecutive_failures: Mapped[int] = mapped_column(server_default=text("0"))
    consecutive_successes: Mapped[int] = mapped_column(server_default=text("0"))
    last_result: Mapped[dict[str, Any] | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
