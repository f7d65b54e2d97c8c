"""The verdict on kind ``http``: what was asserted against what was answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shared.domain import effort
from shared.domain.assertions import Assertion, Operator
from shared.domain.checks_http import HttpCheck, HttpRequest
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evidence import http_evidence
from shared.domain.json_schema import SchemaFailedError, first_fault
from shared.domain.jsonpath import PathFailedError, find_values
from shared.domain.judge import Judgement, UnreadableError, failed, judge, passed
from shared.domain.observation import HttpObservation
from shared.domain.redaction import forms_of, redact_verdict
from shared.domain.result import CertificateFacts, CheckVerdict, HttpFacts, Redirect, ResultStatus
from shared.domain.tls_rules import expiring, explained, tls_facts, weakness
from shared.domain.url import Url, parse_foreign_url, parse_url
from shared.domain.verdict import inverted, verdict_of

SHOWN_URL = 1000
"""Characters of a URL that a result shows; servers may redirect to very long ones."""

READ_AT_ONCE = 131_072
"""Bytes of a body that are read and compared within a millisecond or two."""

MATCHED_AT_ONCE = 2**18
"""Sizes of patterns times characters that take five milliseconds at the very worst."""

SUCCESS = Assertion(source="status", operator=Operator.IN, value="200-299")
"""What holds for a status nobody asserted anything about."""


def is_laborious(spec: HttpRequest, seen: HttpObservation) -> bool:
    """Whether judging may take longer than all other checks of a worker should wait for."""
    if not seen.body and not spec.pattern_size:
        return False
    characters = len(seen.body) + sum(len(value) for _, value in seen.headers)
    return spec.searches or spec.pattern_size * characters > MATCHED_AT_ONCE or len(seen.body) > READ_AT_ONCE


def http(spec: HttpRequest, seen: HttpObservation, now_ms: int) -> CheckVerdict:
    """Judge an answer, or how far it came."""
    effort.begin()
    final = parse_foreign_url(seen.final_url) if seen.redirects and seen.final_url else parse_url(spec.url)
    tls = tls_facts(seen.tls, seen.remote_address, now_ms, spec.tls)
    certificate = tls.certificate if tls else None
    judgements = [_judge_http(assertion, seen, certificate) for assertion in _effective(spec)]
    error = seen.error or weakness(spec.tls, seen.tls)
    warning = expiring(spec.tls, seen.tls, final.host, now_ms)
    verdict = verdict_of(judgements, explained(error, seen.tls, final.host, now_ms), warning)
    if spec.auth and seen.status_code == 401:
        verdict = _unauthorised(spec, verdict, final)
    if isinstance(spec, HttpCheck) and spec.invert and _was_looked_at(spec, seen):
        verdict = inverted(verdict)
    facts = HttpFacts(
        status_code=seen.status_code,
        version=seen.version,
        remote_address=seen.remote_address,
        redirects=tuple(map(_shown, seen.redirects)),
        body_bytes=seen.body_bytes,
        final_url=_short(seen.final_url),
    )
    secrets = _secrets(spec, seen)
    evidence = None if verdict.status is ResultStatus.UP else http_evidence(seen, secrets)
    # Built anew because ``replace`` costs three times as much, for every check.
    verdict = CheckVerdict(
        verdict.status,
        error=verdict.error,
        timings_ms=seen.timings,
        http=facts,
        tls=tls,
        assertions=verdict.assertions,
        evidence=evidence,
    )
    return redact_verdict(verdict, secrets) if secrets else verdict


def _secrets(spec: HttpRequest, seen: HttpObservation) -> tuple[str, ...]:
    """Those of the check and the attempt, and what assertions would quote from headers that sound secret."""
    if not spec.sensitive_headers:
        return spec.secrets + seen.secrets
    quoted = forms_of(value for name, value in seen.headers if name in spec.sensitive_headers)
    return spec.secrets + seen.secrets + quoted


def _was_looked_at(spec: HttpRequest, seen: HttpObservation) -> bool:
    """Whether a failure may be the target's: not where the token server or the proxy kept us from asking it."""
    if seen.error is None:
        return True
    if seen.error.kind is ErrorKind.AUTH_FAILED:
        return False
    return spec.proxy is None or any(failure is None for _, failure in seen.addresses)


def _shown(hop: Redirect) -> Redirect:
    return Redirect(hop.status_code, _short(hop.url) or "")


def _short(url: str | None) -> str | None:
    return url if url is None or len(url) <= SHOWN_URL else f"{url[: SHOWN_URL - 1]}…"


def _unauthorised(spec: HttpRequest, verdict: CheckVerdict, final: Url) -> CheckVerdict:
    """A 401 in answer to credentials is about them; at another origin none were sent."""
    failed_on_status = verdict.error is not None and verdict.error.kind is ErrorKind.STATUS_CODE
    if not failed_on_status or not spec.auth or final.origin != parse_url(spec.url).origin:
        return verdict
    message = f"the server refused the credentials (status 401, {spec.auth.kind} authentication)"
    return replace(verdict, error=CheckError(ErrorKind.AUTH_FAILED, message))


def _effective(spec: HttpRequest) -> list[Assertion]:
    """The user's assertions, with the one on the status that holds by default put first."""
    if any(assertion.source == "status" for assertion in spec.assertions):
        return spec.assertions
    return [SUCCESS, *spec.assertions]


def _judge_http(assertion: Assertion, seen: HttpObservation, certificate: CertificateFacts | None) -> Judgement:
    # A certificate is often known although the check failed, and then most of all.
    known = certificate is not None and assertion.source == "certificate_days_left"
    if seen.error is not None and not known:
        return failed(assertion, None, None)
    try:
        if assertion.source == "json_schema":
            return _judge_schema(assertion, json_of(seen))
        return judge(assertion, _READ[assertion.source](assertion, seen, certificate))
    except UnreadableError as unreadable:
        return failed(assertion, None, unreadable.error)


def _judge_schema(assertion: Assertion, document: Any) -> Judgement:
    try:
        fault = first_fault(assertion.value, document)
    except SchemaFailedError as error:
        return failed(assertion, None, CheckError(ErrorKind.JSON_ERROR, str(error)))
    if fault is None:
        return passed(assertion, None)
    return failed(
        assertion, None, CheckError(ErrorKind.ASSERTION_FAILED, f"the body is not as the schema: {fault}")
    )


def _read_status(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.status_code]


def _read_header(assertion: Assertion, seen: HttpObservation, _: CertificateFacts | None) -> list[Any]:
    value = seen.header(assertion.path or "")
    return [] if value is None else [value]


def _read_body(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.text]


def _read_json(assertion: Assertion, seen: HttpObservation, _: CertificateFacts | None) -> list[Any]:
    document = json_of(seen)
    try:
        return find_values(assertion.path or "$", document)
    except PathFailedError as error:
        raise UnreadableError(CheckError(ErrorKind.JSON_ERROR, f"{assertion.path}: {error}")) from None


def json_of(seen: HttpObservation) -> Any:
    """The body as JSON; raises ``UnreadableError``."""
    try:
        return seen.json
    except (ValueError, RecursionError) as error:
        raise UnreadableError(CheckError(ErrorKind.JSON_ERROR, f"the body is not JSON: {_reason(error)}")) from None


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]


def _read_response_time(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [round(seen.timings.total, 3)]


def _read_days_left(_: Assertion, __: HttpObservation, certificate: CertificateFacts | None) -> list[Any]:
    return [] if certificate is None or certificate.days_left is None else [certificate.days_left]


def _read_timing(assertion: Assertion, seen: HttpObservation, _: CertificateFacts | None) -> list[Any]:
    return [round(getattr(seen.timings, assertion.path or "total"), 3)]


def _read_body_bytes(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.body_bytes]


def _read_final_url(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.final_url]


def _read_redirects(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [len(seen.redirects)]


def _read_remote_address(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.remote_address]


def _read_http_version(_: Assertion, seen: HttpObservation, __: CertificateFacts | None) -> list[Any]:
    return [seen.version]


_READ: dict[str, Callable[[Assertion, HttpObservation, CertificateFacts | None], list[Any]]] = {
    "status": _read_status,
    "header": _read_header,
    "body": _read_body,
    "json": _read_json,
    "response_time_ms": _read_response_time,
    "certificate_days_left": _read_days_left,
    "timing": _read_timing,
    "body_bytes": _read_body_bytes,
    "final_url": _read_final_url,
    "redirects": _read_redirects,
    "remote_address": _read_remote_address,
    "http_version": _read_http_version,
}
