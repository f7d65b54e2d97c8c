"""Certificates of monitors as clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from shared.db.models import Certificate
from shared.domain.result import CertificateChange, CertificateFacts


class CertificateRead(BaseModel):
    """A certificate that a monitor was shown, as it was then.

    `changes` is what none of the ten accepted certificates had that were first seen last before it. While
    `accepted_at` is null, results with this certificate report them.
    """

    fingerprint_sha256: str
    first_seen_at: datetime
    facts: CertificateFacts
    changes: list[CertificateChange]
    accepted_at: datetime | None
    accepted_by: Annotated[
        str | None, Field(description="Null where nobody had to be asked.", examples=["API key CI"])
    ]


class CertificatePage(BaseModel):
    items: list[CertificateRead]
    next_cursor: str | None


_FIELDS = tuple(CertificateRead.model_fields)


def certificate_document(certificate: Certificate) -> dict[str, Any]:
    return {name: getattr(certificate, name) for name in _FIELDS}
