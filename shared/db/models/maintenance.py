"""Maintenance windows as they were written, and the spans that were planned from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base, new_id


class MaintenanceWindow(Base):
    """What its owner wrote. ``planned_from`` is its last change: no occurrence begins before it."""

    __tablename__ = "maintenance_windows"
    __table_args__ = (Index(None, "organisation_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    monitor_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid()))
    tags: Mapped[dict[str, str]]
    all_monitors: Mapped[bool]
    starts_at: Mapped[datetime | None]
    ends_at: Mapped[datetime | None]
    schedule: Mapped[dict[str, Any] | None]
    planned_from: Mapped[datetime]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class MaintenanceOccurrence(Base):
    """A half-open span [starts_at, ends_at), with whom it silences copied into it.

    It outlives its window on purpose (no foreign key): what was silent until a deletion stays silent.
    """

    __tablename__ = "maintenance_occurrences"
    __table_args__ = (
        CheckConstraint("ends_at > starts_at", name="order"),
        CheckConstraint("phase IN ('planned', 'active', 'over')", name="phase"),
        Index(None, "organisation_id", "ends_at"),
        Index("ix_maintenance_occurrences_begin", "starts_at", postgresql_where=text("phase = 'planned'")),
        Index("ix_maintenance_occurrences_end", "ends_at", postgresql_where=text("phase = 'active'")),
    )

    window_id: Mapped[UUID] = mapped_column(primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(primary_key=True)
    ends_at: Mapped[datetime]
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    monitor_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid()))
    tags: Mapped[dict[str, str]]
    all_monitors: Mapped[bool]
    phase: Mapped[str] = mapped_column(server_default=text("'planned'"))
