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
    """The leaf certificate. A fact that could not be parsed is null: parsing never decides the verdict.

    ``days_left`` is the least of the validated path; ``ends_first`` names the certificate it belongs to, where
    that is not the leaf. ``public_key_sha256`` is the hash of the key's SubjectPublicKeyInfo, ``names_sha256`` that
    of all alternative names, sorted; ``sans`` are the first hundred of them.
    """

    subject: str | None
    issuer: str | None
    sans: tuple[str, ...]
    serial: str | None
    fingerprint_sha256: str
    not_before: datetime | None
    not_after: datetime | None
    days_left: int | None
    ends_first: str | None = None
    key_kind: str | None = None
    key_bits: int | None = None
    public_key_sha256: str | None = None
    signature_algorithm: str | None = None
    names_sha256: str | None = None


class ChangeKind(StrEnum):
    """What a new certificate may change beside dates and serial."""

    ISSUER = "issuer"
    KEY = "key"
    NAMES = "names"


@dataclass(frozen=True, slots=True)
class CertificateChange:
    """One difference between two certificates; ``message`` is a sentence for people, bounded."""

    kind: ChangeKind
    message: str


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """What the TLS handshake with one of several addresses showed, in short. ``address`` includes the port."""

    address: str
    status: ResultStatus
    error: CheckError | None = None
    version: str | None = None
    fingerprint_sha256: str | None = None
    not_after: datetime | None = None
    days_left: int | None = None


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """What the TLS handshake showed, also when verification failed.

    ``addresses`` is filled where all of them were checked; the other fields then belong to the deciding one.
    ``expiry_warning`` is the tightest number of days that was to be warned at and is reached.
    """

    version: str | None = None
    cipher: str | None = None
    remote_address: str | None = None
    certificate: CertificateFacts | None = None
    chain: tuple[str, ...] = ()
    addresses: tuple[AddressFacts, ...] = ()
    expiry_warning: int | None = None


@dataclass(frozen=True, slots=True)
class TcpFacts:
    """What a plain connection showed. ``banner`` is the bounded text of what was received."""

    remote_address: str | None = None
    banner: str | None = None
    banner_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DnsFacts:
    """What a name server answered; ``rcode`` is null when it did not. ``records`` are bounded, see ``count``."""

    server: str | None = None
    transport: str | None = None
    rcode: str | None = None
    records: tuple[str, ...] = ()
    count: int = 0
    ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class PingFacts:
    """Echoes sent and answered; round trips in milliseconds, null when nothing came back."""

    address: str | None = None
    sent: int = 0
    received: int = 0
    loss_percent: float = 0.0
    rtt_min: float | None = None
    rtt_average: float | None = None
    rtt_max: float | None = None


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
class Attempt:
    """One look at the target. ``started_ms`` counts from the beginning of the check; no error means not down."""

    started_ms: float
    total_ms: float
    error: CheckError | None = None


@dataclass(frozen=True, slots=True)
class AddressTried:
    """An address that was dialled. No error: it answered, or others were faster than it."""

    address: str
    error: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen when not all was well: bounded and redacted.

    ``body`` is the beginning (1 KiB) of the last answer as text, ``headers`` are those of that answer.
    """

    attempts: tuple[Attempt, ...] = ()
    addresses: tuple[AddressTried, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """One of several requests. A step that was skipped has neither a status nor attempts.

    ``extracted`` shows the values taken from the answer, those that are secret masked.
    """

    name: str
    status: ResultStatus | None = None
    error: CheckError | None = None
    timings_ms: Timings = field(default_factory=Timings)
    http: HttpFacts | None = None
    assertions: tuple[AssertionOutcome, ...] = ()
    attempts: int = 0
    skipped: bool = False
    extracted: dict[str, str] = field(default_factory=dict)


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
    tcp: TcpFacts | None = None
    dns: DnsFacts | None = None
    ping: PingFacts | None = None
    evidence: Evidence | None = None
    steps: tuple[StepResult, ...] = ()


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
