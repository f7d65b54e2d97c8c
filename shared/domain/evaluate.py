"""From what a probe saw to a verdict: pure, the same answer for the same input at any time.

One function per kind of check, found by the class of its specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from shared.domain.assertions import Assertion, Operator
from shared.domain.certificate import certificate_facts, read_certificate
from shared.domain.checks import HttpCheck, SslCheck
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.jsonpath import PathFailedError, find_values
from shared.domain.judge import Judgement, UnreadableError, failed, judge
from shared.domain.observation import HttpObservation, TlsObservation, TlsPeer
from shared.domain.result import CertificateFacts, CheckVerdict, HttpFacts, ResultStatus, TlsFacts
from shared.domain.url import parse_url

Observation = HttpObservation | TlsObservation

SUCCESS = Assertion(source="status", operator=Operator.IN, value="200-299")
"""What holds for a status nobody asserted anything about."""

MAX_CHAIN = 10
"""Certificates of a chain that a result names; servers may send any number."""

_MOST_TELLING = (ErrorKind.STATUS_CODE,)


def evaluate(spec: HttpCheck | SslCheck, observation: Observation, now_ms: int) -> CheckVerdict:
    """Judge an observation of ``spec`` made at ``now_ms`` (UTC). Raises ``TypeError`` for mismatched records."""
    return _EVALUATE[type(spec)](spec, observation, now_ms)


def effective_assertions(spec: HttpCheck) -> list[Assertion]:
    """The user's assertions, with the one on the status that holds by default put first."""
    if any(assertion.source == "status" for assertion in spec.assertions):
        return spec.assertions
    return [SUCCESS, *spec.assertions]


def _http(spec: HttpCheck, seen: Observation, now_ms: int) -> CheckVerdict:
    if not isinstance(seen, HttpObservation):
        raise TypeError(f"an http check was handed {type(seen).__name__}")
    host = parse_url(seen.final_url or spec.url).host
    tls = _tls_facts(seen.tls, seen.remote_address, now_ms)
    certificate = tls.certificate if tls else None
    judgements = [_judge_http(assertion, seen, certificate) for assertion in effective_assertions(spec)]
    verdict = _verdict(judgements, _dated(seen.error, certificate, host))
    facts = HttpFacts(
        status_code=seen.status_code,
        version=seen.version,
        remote_address=seen.remote_address,
        redirects=seen.redirects,
        body_bytes=seen.body_bytes,
        final_url=seen.final_url,
    )
    return replace(verdict, timings_ms=seen.timings, http=facts, tls=tls)


def _judge_http(assertion: Assertion, seen: HttpObservation, certificate: CertificateFacts | None) -> Judgement:
    # A certificate is often known although the check failed, and then most of all.
    known = certificate is not None and assertion.source == "certificate_days_left"
    if seen.error is not None and not known:
        return failed(assertion, None, None)
    try:
        return judge(assertion, _READ[assertion.source](assertion, seen, certificate))
    except UnreadableError as unreadable:
        return failed(assertion, None, unreadable.error)


def _read_status(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.status_code]


def _read_header(assertion: Assertion, seen: HttpObservation, _: CertificateFacts | None) -> list[Any]:
    value = seen.header(assertion.path or "")
    return [] if value is None else [value]


def _read_body(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.text]


def _read_json(assertion: Assertion, seen: HttpObservation, _: CertificateFacts | None) -> list[Any]:
    try:
        document = seen.json
    except (ValueError, RecursionError) as error:
        raise UnreadableError(CheckError(ErrorKind.JSON_ERROR, f"the body is not JSON: {_reason(error)}")) from None
    try:
        return find_values(assertion.path or "$", document)
    except PathFailedError as error:
        raise UnreadableError(CheckError(ErrorKind.JSON_ERROR, f"{assertion.path}: {error}")) from None


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]


def _read_response_time(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [round(seen.timings.total, 3)]


def _read_days_left(_: Assertion, __: HttpObservation, certificate: CertificateFacts | None) -> list[Any]:
    return _days(certificate)


def _days(certificate: CertificateFacts | None) -> list[Any]:
    return [] if certificate is None or certificate.days_left is None else [certificate.days_left]


_READ: dict[str, Callable[[Assertion, HttpObservation, CertificateFacts | None], list[Any]]] = {
    "status": _read_status,
    "header": _read_header,
    "body": _read_body,
    "json": _read_json,
    "response_time_ms": _read_response_time,
    "certificate_days_left": _read_days_left,
}


def _ssl(spec: SslCheck, seen: Observation, now_ms: int) -> CheckVerdict:
    if not isinstance(seen, TlsObservation):
        raise TypeError(f"an ssl check was handed {type(seen).__name__}")
    host = spec.server_name or spec.host
    tls = _tls_facts(seen.peer, seen.remote_address, now_ms)
    certificate = tls.certificate if tls else None
    judgements = [_judge_ssl(assertion, seen, certificate) for assertion in spec.assertions]
    # A check of the certificate looks at its end even where the chain is not to be verified.
    error = _dated(seen.error or _ended(certificate), certificate, host)
    verdict = _verdict(judgements, error, _expiring(spec, certificate, host))
    return replace(verdict, timings_ms=seen.timings, tls=tls)


def _judge_ssl(assertion: Assertion, seen: TlsObservation, certificate: CertificateFacts | None) -> Judgement:
    if assertion.source == "certificate_days_left":
        return judge(assertion, _days(certificate)) if certificate else failed(assertion, None, None)
    return judge(assertion, [round(seen.timings.total, 3)]) if not seen.error else failed(assertion, None, None)


def _ended(certificate: CertificateFacts | None) -> CheckError | None:
    if certificate and certificate.days_left is not None and certificate.days_left < 0:
        return CheckError(ErrorKind.TLS_EXPIRED, "the certificate has expired")
    return None


def _expiring(spec: SslCheck, certificate: CertificateFacts | None, host: str) -> CheckError | None:
    if certificate is None or certificate.days_left is None or not spec.tls.expiry_warning_days:
        return None
    warning = max(spec.tls.expiry_warning_days)
    if certificate.days_left > warning:
        return None
    days = _days_text(certificate.days_left)
    return CheckError(ErrorKind.ASSERTION_FAILED, f"certificate of {host} expires in {days} (warning at {warning})")


def _verdict(
    judgements: Iterable[Judgement], error: CheckError | None, warning: CheckError | None = None
) -> CheckVerdict:
    """What stopped the check comes first, then a failed assertion that means down, then one that means degraded."""
    judged = list(judgements)
    down = error or _worst(judged, "down")
    degraded = _worst(judged, "degraded") or warning
    outcomes = tuple(each.outcome for each in judged)
    if down:
        return CheckVerdict(ResultStatus.DOWN, error=down, assertions=outcomes)
    if degraded:
        return CheckVerdict(ResultStatus.DEGRADED, error=degraded, assertions=outcomes)
    return CheckVerdict(ResultStatus.UP, assertions=outcomes)


def _worst(judged: list[Judgement], severity: str) -> CheckError | None:
    errors = [each.error for each in judged if each.error and each.outcome.severity == severity]
    # A wrong status explains a wrong body, hardly ever the other way round.
    return next((error for error in errors if error.kind in _MOST_TELLING), errors[0] if errors else None)


def _tls_facts(peer: TlsPeer | None, remote_address: str | None, now_ms: int) -> TlsFacts | None:
    if peer is None:
        return None
    return TlsFacts(
        version=peer.version,
        cipher=peer.cipher,
        remote_address=remote_address,
        certificate=certificate_facts(peer.chain[0], peer.path, now_ms) if peer.chain else None,
        chain=tuple(read_certificate(der).subject or "" for der in peer.chain[:MAX_CHAIN]),
    )


def _dated(error: CheckError | None, certificate: CertificateFacts | None, host: str) -> CheckError | None:
    """Give the two errors about time their date; only here the certificate and the time of the check are known."""
    if error is None or certificate is None:
        return error
    if error.kind is ErrorKind.TLS_EXPIRED and certificate.days_left is not None and certificate.days_left < 0:
        ago = _days_text(-certificate.days_left - 1)
        return CheckError(error.kind, f"certificate of {host} expired {ago} ago")
    if error.kind is ErrorKind.TLS_NOT_YET_VALID and certificate.not_before:
        return CheckError(
            error.kind, f"certificate of {host} is valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC"
        )
    return error


def _days_text(days: int) -> str:
    if days == 0:
        return "less than a day"
    return f"{days} day" if days == 1 else f"{days} days"


_EVALUATE: dict[type, Callable[[Any, Observation, int], CheckVerdict]] = {HttpCheck: _http, SslCheck: _ssl}
