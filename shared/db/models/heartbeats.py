"""Heartbeat monitors, their pings that wait to be judged, and when pings could be received at all."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base


class Heartbeat(Base):
    """What is remembered of a heartbeat monitor. ``token`` is sealed: it opens the ping address to whoever has it.

    ``next_deadline_at`` is when it has to be judged if nothing comes; null while it is paused.
    """

    __tablename__ = "heartbeats"
    __table_args__ = ({"postgresql_with": {"fillfactor": 50}},)

    monitor_id: Mapped[UUID] = mapped_column(ForeignKey("monitors.id", ondelete="CASCADE"), primary_key=True)
    organisation_id: Mapped[UUID]
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    token: Mapped[str]
    state: Mapped[dict[str, Any]]
    next_deadline_at: Mapped[datetime | None] = mapped_column(index=True)


class HeartbeatPing(Base):
    """A ping that was answered and is not judged yet.

    No foreign key: a check of it would make those who store pings wait for those who judge them.
    """

    __tablename__ = "heartbeat_pings"
    __table_args__ = (CheckConstraint("signal IN ('success', 'start', 'fail', 'log')", name="signal"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    organisation_id: Mapped[UUID]
    monitor_id: Mapped[UUID] = mapped_column(index=True)
    received_at: Mapped[datetime]
    signal: Mapped[str]
    exit_code: Mapped[int | None]
    run_id: Mapped[str | None]
    body: Mapped[str | None]


class HeartbeatReceiver(Base):
    """A span in which one API process could receive pings and store them."""

    __tablename__ = "heartbeat_receivers"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    alive_from: Mapped[datetime]
    alive_until: Mapped[datetime] = mapped_column(index=True)
