"""The result as users, dashboards and webhooks read it; the one place that knows this shape."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from shared.contracts.wire import ResultMessage, Trigger
from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError
from shared.domain.result import (
    AssertionOutcome,
    CheckVerdict,
    DnsFacts,
    Evidence,
    HttpFacts,
    PingFacts,
    ResultStatus,
    StepResult,
    TcpFacts,
    Timings,
    TlsFacts,
)


class ResultDocument(msgspec.Struct, frozen=True):
    """A result in its public form. ``monitor_id`` is null for the preview of an unsaved check."""

    monitor_id: UUID | None
    region: str
    scheduled_at: datetime
    started_at: datetime | None
    status: ResultStatus
    attempts: int
    error: CheckError | None
    timings_ms: Timings
    http: HttpFacts | None
    tls: TlsFacts | None
    assertions: tuple[AssertionOutcome, ...]
    trigger: Trigger
    revision: int
    tcp: TcpFacts | None = None
    dns: DnsFacts | None = None
    ping: PingFacts | None = None
    evidence: Evidence | None = None
    steps: tuple[StepResult, ...] = ()


class ResultDetail(msgspec.Struct, frozen=True):
    """What storage keeps of a result beside its own columns."""

    timings_ms: Timings
    http: HttpFacts | None = None
    tls: TlsFacts | None = None
    assertions: tuple[AssertionOutcome, ...] = ()
    tcp: TcpFacts | None = None
    dns: DnsFacts | None = None
    ping: PingFacts | None = None
    evidence: Evidence | None = None
    steps: tuple[StepResult, ...] = ()


def detail_of(verdict: CheckVerdict) -> ResultDetail:
    return ResultDetail(**{name: getattr(verdict, name) for name in ResultDetail.__struct_fields__})


def document_of(message: ResultMessage) -> ResultDocument:
    """The public form of a result that is on its way into storage."""
    return document(
        message.verdict,
        monitor_id=message.monitor_id,
        region=message.region,
        slot_ms=message.slot_ms,
        started_at_ms=message.started_at_ms,
        trigger=message.trigger,
        revision=message.revision,
    )


def document(
    verdict: CheckVerdict,
    *,
    monitor_id: UUID | None,
    region: str,
    slot_ms: int,
    started_at_ms: int | None,
    trigger: Trigger = "manual",
    revision: int = 0,
) -> ResultDocument:
    return ResultDocument(
        monitor_id=monitor_id,
        region=region,
        scheduled_at=to_datetime(slot_ms),
        started_at=None if started_at_ms is None else to_datetime(started_at_ms),
        status=verdict.status,
        attempts=verdict.attempts,
        error=verdict.error,
        timings_ms=verdict.timings_ms,
        http=verdict.http,
        tls=verdict.tls,
        assertions=verdict.assertions,
        trigger=trigger,
        revision=revision,
        tcp=verdict.tcp,
        dns=verdict.dns,
        ping=verdict.ping,
        evidence=verdict.evidence,
        steps=verdict.steps,
    )


_encoder = msgspec.json.Encoder()


def encode(value: Any) -> str:
    """JSON text that PostgreSQL's jsonb accepts: it has no place for the character NUL."""
    text = _encoder.encode(value).decode()
    if "\\u0000" not in text:
        return text
    return _encoder.encode(_without_nul(msgspec.json.decode(text))).decode()


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        case list():
            return [_without_nul(item) for item in value]
        case dict():
            return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value
