"""What must reach NATS for sure, and what a repeated request must answer again."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Identity, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base


class OutboxRow(Base):
    """A message written in the transaction of the change it tells of; the relay sends it, then deletes it."""

    __tablename__ = "outbox"
    __table_args__ = (Index(None, "topic", "key", "id"),)

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    organisation_id: Mapped[UUID]
    topic: Mapped[str]
    key: Mapped[str]
    payload: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class IdempotencyKey(Base):
    """The answer to a POST. ``body`` is encrypted: the answer that creates an API key holds the key."""

    __tablename__ = "idempotency_keys"

    organisation_id: Mapped[UUID] = mapped_column(
        ForeignKey("organisations.id", ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[bytes]
    status_code: Mapped[int | None]
    body: Mapped[bytes | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
