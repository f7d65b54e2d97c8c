"""What each slot showed. Partitioned by day: retention drops partitions, it never deletes rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Double, func
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base


class CheckResult(Base):
    """One slot of one monitor in one region. ``detail`` holds timings, HTTP and TLS facts and assertions.

    There is no foreign key to the monitor: it would cost every insert, and history goes with its partition.
    """

    __tablename__ = "check_results"
    __table_args__ = (
        CheckConstraint("status IN ('up', 'degraded', 'down', 'missed')", name="status"),
        {"postgresql_partition_by": "RANGE (scheduled_at)"},
    )

    monitor_id: Mapped[UUID] = mapped_column(primary_key=True)
    scheduled_at: Mapped[datetime] = mapped_column(primary_key=True)
    region: Mapped[str] = mapped_column(primary_key=True)
    organisation_id: Mapped[UUID]
    started_at: Mapped[datetime | None]
    revision: Mapped[int]
    status: Mapped[str]
    attempts: Mapped[int]
    error_kind: Mapped[str | None]
    error_message: Mapped[str | None]
    total_ms: Mapped[float | None] = mapped_column(Double())
    trigger: Mapped[str]
    detail: Mapped[dict[str, Any]]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())
