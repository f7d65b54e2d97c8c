"""Where each of the platform's own jobs stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base


class JobState(Base):
    """One row per job, of no tenant; written by whichever process runs it.

    ``schedule_id`` and ``revision`` are those of its schedule in the bucket, where those of the workers have one.
    ``fence`` grows with every run: what a run writes is accepted only while the fence is still its own.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("every_seconds > 0", name="every"),
        CheckConstraint("runs_in IN ('worker', 'api')", name="runs_in"),
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    every_seconds: Mapped[int]
    silence_after_seconds: Mapped[int]
    runs_in: Mapped[str]
    schedule_id: Mapped[UUID] = mapped_column(unique=True)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    registered_at: Mapped[datetime]
    fence: Mapped[int] = mapped_column(server_default=text("0"))
    checkpoint: Mapped[dict[str, Any] | None]
    last_started_at: Mapped[datetime | None]
    last_finished_at: Mapped[datetime | None]
    last_success_at: Mapped[datetime | None]
    last_duration_ms: Mapped[int | None]
    last_status: Mapped[str | None]
    last_error: Mapped[str | None]
    processed: Mapped[int] = mapped_column(server_default=text("0"))
    runs: Mapped[int] = mapped_column(server_default=text("0"))
    failures: Mapped[int] = mapped_column(server_default=text("0"))
    timeouts: Mapped[int] = mapped_column(server_default=text("0"))
    skipped: Mapped[int] = mapped_column(server_default=text("0"))
