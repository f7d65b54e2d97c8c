"""The verdict on one slot of one monitor in one region."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from shared.domain.errors import CheckError, ErrorKind, MissedReason


class ResultStatus(StrEnum):
    """``missed`` says that the slot was not judged; it is never evidence about the target."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds spent per phase; a phase that was not reached is 0."""

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    first_byte: float = 0.0
    transfer: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Redirect:
    """One hop that was followed."""

    status_code: int
    url: str


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """What the HTTP exchange showed; everything is null or empty when no answer came."""

    status_code: int | None = None
    version: str | None = None
    remote_address: str | None = None
    redirects: tuple[Redirect, ...] = ()
    body_bytes: int = 0
    final_url: str | None = None


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The leaf certificate. A fact that could not be parsed is null: parsing never decides the verdict."""

    subject: str | None
    issuer: str | None
    sans: tuple[str, ...]
    serial: str | None
    fingerprint_sha256: str
    not_before: datetime | None
    not_after: datetime | None
    days_left: int | None


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """What the TLS handshake showed, also when verification failed."""

    version: str | None = None
    cipher: str | None = None
    remote_address: str | None = None
    certificate: CertificateFacts | None = None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    """One assertion with what it found. ``actual`` is bounded."""

    source: str
    operator: str
    expected: Any
    actual: Any
    passed: bool
    path: str | None = None
    severity: str = "down"
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What one run of a check says: everything of a result but its place (monitor, region, slot)."""

    status: ResultStatus
    attempts: int = 1
    error: CheckError | None = None
    timings_ms: Timings = field(default_factory=Timings)
    http: HttpFacts | None = None
    tls: TlsFacts | None = None
    assertions: tuple[AssertionOutcome, ...] = ()


def missed(reason: MissedReason, message: str) -> CheckVerdict:
    """The verdict of a slot that was not run."""
    return CheckVerdict(ResultStatus.MISSED, attempts=0, error=CheckError(ErrorKind(reason.value), message))


@dataclass(frozen=True, slots=True)
class SlotKey:
    """The identity of one due check: unique in the queue (message id) and in storage (unique key)."""

    monitor_id: UUID
    region: str
    slot_ms: int

    @property
    def message_id(self) -> str:
        return f"{self.monitor_id}:{self.slot_ms}:{self.region}"
