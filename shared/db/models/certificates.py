"""The certificates that monitors have seen."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from shared.db.base import Base


class Certificate(Base):
    """A certificate as a monitor saw it first.

    ``facts`` is a ``CertificateFacts`` of that moment, ``changes`` a list of ``CertificateChange``. Without
    ``accepted_at`` the changes are being reported; without ``accepted_by`` nobody had to be asked.
    """

    __tablename__ = "certificates"
    __table_args__ = (CheckConstraint("accepted_by IS NULL OR accepted_at IS NOT NULL", name="accepted"),)

    monitor_id: Mapped[UUID] = mapped_column(ForeignKey("monitors.id", ondelete="CASCADE"), primary_key=True)
    fingerprint_sha256: Mapped[str] = mapped_column(primary_key=True)
    organisation_id: Mapped[UUID]
    first_seen_at: Mapped[datetime]
    facts: Mapped[dict[str, Any]]
    changes: Mapped[list[dict[str, Any]]] = mapped_column(JSONB())
    accepted_at: Mapped[datetime | None]
    accepted_by: Mapped[str | None]
