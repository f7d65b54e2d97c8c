"""The verdicts on handshakes, connections, names and echoes: pure, one function per kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shared.domain.assertions import Assertion
from shared.domain.checks_network import DnsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.comparison import bounded
from shared.domain.dns_records import RecordKind, normalise_record
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.judge import Judgement, failed, judge
from shared.domain.observation import TlsObservation
from shared.domain.observation_network import DnsObservation, PingObservation, TcpObservation
from shared.domain.result import (
    AddressFacts,
    CertificateFacts,
    CheckVerdict,
    DnsFacts,
    PingFacts,
    ResultStatus,
    TcpFacts,
    Timings,
    TlsFacts,
)
from shared.domain.tls_rules import ended, expiring, explained, tls_facts, weakness
from shared.domain.verdict import verdict_of

MAX_RECORDS = 100
_SEVERITY = {ResultStatus.UP: 0, ResultStatus.DEGRADED: 1, ResultStatus.DOWN: 2}
_SHOWN = 5


def ssl(spec: SslCheck, seen: TlsObservation, now_ms: int) -> CheckVerdict:
    """One handshake, or the worst of those with each address."""
    if not seen.each:
        return _handshake(spec, seen, now_ms)
    judged = [(each, _handshake(spec, each, now_ms)) for each in seen.each]
    addresses = tuple(_address_facts(each, verdict) for each, verdict in judged)
    worst, verdict = max(judged, key=lambda pair: _badness(pair[1]))
    if verdict.error and len(judged) > 1:
        told = f"{worst.remote_address}, one of {len(judged)} addresses: {verdict.error.message}"
        verdict = replace(verdict, error=CheckError(verdict.error.kind, told))
    return replace(verdict, tls=replace(verdict.tls or TlsFacts(), addresses=addresses))


def _badness(verdict: CheckVerdict) -> tuple[int, int]:
    days = _days_left(verdict.tls.certificate if verdict.tls else None)
    return _SEVERITY[verdict.status], -days[0] if days else 0


def _address_facts(seen: TlsObservation, verdict: CheckVerdict) -> AddressFacts:
    facts = verdict.tls or TlsFacts()
    certificate = facts.certificate
    return AddressFacts(
        address=seen.remote_address or "",
        status=verdict.status,
        error=verdict.error,
        version=facts.version,
        fingerprint_sha256=certificate.fingerprint_sha256 if certificate else None,
        not_after=certificate.not_after if certificate else None,
        days_left=certificate.days_left if certificate else None,
    )


def _handshake(spec: SslCheck, seen: TlsObservation, now_ms: int) -> CheckVerdict:
    host = spec.server_name or spec.host
    tls = tls_facts(seen.peer, seen.remote_address, now_ms, spec.tls)
    certificate = tls.certificate if tls else None
    judgements = [_judge_ssl(assertion, seen, certificate) for assertion in spec.assertions]
    # A check of the certificate looks at its end even where the chain is not to be verified.
    weak = weakness(spec.tls, seen.peer)
    error = seen.error or ended(seen.peer, now_ms) or weak
    if weak and error and error.kind in {ErrorKind.TLS_WEAK, ErrorKind.TLS_HANDSHAKE}:
        error = weak  # the handshake only knows that it failed; the facts say by what
    verdict = verdict_of(
        judgements, explained(error, seen.peer, host, now_ms), expiring(spec.tls, seen.peer, host, now_ms)
    )
    return replace(verdict, timings_ms=seen.timings, tls=tls)


def _judge_ssl(assertion: Assertion, seen: TlsObservation, certificate: CertificateFacts | None) -> Judgement:
    if assertion.source == "certificate_days_left":
        return judge(assertion, _days_left(certificate)) if certificate else failed(assertion, None, None)
    return _judge_time(assertion, seen.timings, seen.error)


def _days_left(certificate: CertificateFacts | None) -> list[Any]:
    return [] if certificate is None or certificate.days_left is None else [certificate.days_left]


def _judge_time(assertion: Assertion, timings: Timings, error: CheckError | None) -> Judgement:
    return failed(assertion, None, None) if error else judge(assertion, [round(timings.total, 3)])


def tcp(spec: TcpCheck, seen: TcpObservation, now_ms: int) -> CheckVerdict:
    """A connection, its TLS where there is some, and its banner where one is expected."""
    host = spec.server_name or spec.host
    error, warning = seen.error or _banner_error(spec, seen), None
    if spec.tls is not None:
        error = explained(error or weakness(spec.tls, seen.peer), seen.peer, host, now_ms)
        warning = expiring(spec.tls, seen.peer, host, now_ms)
    judgements = [_judge_time(assertion, seen.timings, error) for assertion in spec.assertions]
    text = seen.received.decode("utf-8", "replace") if seen.received else None
    facts = TcpFacts(seen.remote_address, bounded(text), len(seen.received))
    tls = tls_facts(seen.peer, seen.remote_address, now_ms, spec.tls)
    return replace(verdict_of(judgements, error, warning), timings_ms=seen.timings, tcp=facts, tls=tls)


def _banner_error(spec: TcpCheck, seen: TcpObservation) -> CheckError | None:
    if spec.expect is None or seen.end == "match":
        return None
    wanted = bounded(spec.expect, 80)
    if not seen.received:
        if seen.end == "deadline":
            return CheckError(ErrorKind.BANNER_TIMEOUT, f"nothing came that could match {wanted!r} in time")
        return CheckError(ErrorKind.BANNER_MISMATCH, f"the connection ended before anything matched {wanted!r}")
    got = bounded(seen.received.decode("utf-8", "replace"), 80)
    told = {"closed": " before the connection ended", "limit": "", "deadline": " in time"}.get(seen.end or "", "")
    count = f"{len(seen.received)} byte{'' if len(seen.received) == 1 else 's'}"
    return CheckError(ErrorKind.BANNER_MISMATCH, f"{count} came, {got!r}, and did not match {wanted!r}{told}")


def dns(spec: DnsCheck, seen: DnsObservation, now_ms: int) -> CheckVerdict:  # noqa: ARG001 one signature for all
    """An answer, what its code means, and its records."""
    error = seen.error or _answer_error(spec, seen) or _mismatch(spec, seen)
    judgements = [_judge_time(assertion, seen.timings, error) for assertion in spec.assertions]
    facts = DnsFacts(
        server=seen.server,
        transport=seen.transport,
        rcode=seen.rcode,
        records=tuple(bounded(record) for record in seen.records[:MAX_RECORDS]),
        count=len(seen.records),
        ttl_seconds=seen.ttl,
    )
    return replace(verdict_of(judgements, error), timings_ms=seen.timings, dns=facts)


def _answer_error(spec: DnsCheck, seen: DnsObservation) -> CheckError | None:
    # What is missing is the end of a chain of CNAMEs, and that is what has to be mended.
    leads = f"{spec.name} leads to {seen.alias}, which" if seen.alias else spec.name
    reason = f" ({seen.reason})" if seen.reason else ""
    if seen.rcode == "NXDOMAIN":
        return CheckError(ErrorKind.DNS_NXDOMAIN, f"{leads} does not exist, says {seen.server} (NXDOMAIN){reason}")
    if seen.rcode != "NOERROR":
        return CheckError(ErrorKind.DNS_FAILURE, f"{seen.server} answered {seen.rcode} for {spec.name}{reason}")
    if not seen.records:
        return CheckError(ErrorKind.DNS_NO_DATA, f"{leads} has no {spec.record} record, says {seen.server}{reason}")
    return None


def _mismatch(spec: DnsCheck, seen: DnsObservation) -> CheckError | None:
    if not spec.expected:
        return None
    found = dict.fromkeys(_comparable(spec.record, record) for record in seen.records)
    wanted = dict.fromkeys(normalise_record(spec.record, value) for value in spec.expected)
    missing = [value for value in wanted if value not in found]
    surplus = [value for value in found if value not in wanted] if spec.match == "equals" else []
    if not missing and not surplus:
        return None
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"not expected {_listed(surplus)}"] if surplus else []
    told = f"{spec.record} of {spec.name}: {'; '.join(parts)}; found {_listed(list(found))}"
    return CheckError(ErrorKind.RECORD_MISMATCH, told)


def _comparable(kind: RecordKind, record: str) -> str:
    try:
        return normalise_record(kind, record)
    except ValueError:
        return record  # an odd record of a zone equals nothing anybody expects


def _listed(values: list[str]) -> str:
    shown = ", ".join(str(bounded(value, 60)) for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown


def ping(spec: PingCheck, seen: PingObservation, now_ms: int) -> CheckVerdict:  # noqa: ARG001 one signature for all
    """Echoes: how many were lost, and how long the others took."""
    lost = seen.sent - len(seen.round_trips)
    percent = round(100 * lost / seen.sent, 1) if seen.sent else 0.0
    error, warning = seen.error, None
    if error is None and not seen.round_trips:
        told = f"{seen.address} answered none of {seen.sent} echo request{'' if seen.sent == 1 else 's'}"
        error = CheckError(ErrorKind.TIMEOUT, told)
    elif error is None and percent >= spec.down_loss_percent:
        error = _loss(lost, seen.sent, f"down from {spec.down_loss_percent:g} %")
    elif spec.degraded_loss_percent is not None and percent >= spec.degraded_loss_percent:
        warning = _loss(lost, seen.sent, f"degraded from {spec.degraded_loss_percent:g} %")
    judgements = [_judge_time(assertion, seen.timings, error) for assertion in spec.assertions]
    return replace(verdict_of(judgements, error, warning), timings_ms=seen.timings, ping=_ping_facts(seen, percent))


def _loss(lost: int, sent: int, threshold: str) -> CheckError:
    return CheckError(ErrorKind.ASSERTION_FAILED, f"{lost} of {sent} echo requests were lost ({threshold})")


def _ping_facts(seen: PingObservation, loss_percent: float) -> PingFacts:
    times = seen.round_trips
    return PingFacts(
        address=seen.address,
        sent=seen.sent,
        received=len(times),
        loss_percent=loss_percent,
        rtt_min=min(times, default=None),
        rtt_average=round(sum(times) / len(times), 3) if times else None,
        rtt_max=max(times, default=None),
    )
