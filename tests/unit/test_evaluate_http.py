"""The verdict on an answer: the further sources, refused credentials, inversion, evidence."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from shared.domain import observation
from shared.domain.checks import HttpCheck
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evaluate import evaluate
from shared.domain.observation import HttpObservation
from shared.domain.result import AddressTried, CheckVerdict, Redirect, ResultStatus, Timings

NOW = 1_800_000_000_000
SEEN = Timings(dns=1, connect=2, tls=3, first_byte=100, transfer=7, total=113)
ANSWER: dict[str, Any] = {
    "status_code": 200,
    "version": "1.1",
    "body": b'{"id": 5}',
    "body_bytes": 9,
    "redirects": (Redirect(302, "https://shop.example/next"),),
    "final_url": "https://shop.example/next",
    "remote_address": "192.0.2.1:443",
}


def judged(*assertions: dict[str, Any], seen: dict[str, Any] | None = None, **fields: Any) -> CheckVerdict:
    spec = HttpCheck.model_validate({"url": "https://shop.example/", "assertions": assertions, **fields})
    return evaluate(spec, HttpObservation(SEEN, **{**ANSWER, **(seen or {})}), NOW)


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


@pytest.mark.parametrize(
    ("source", "operator", "value", "path", "passes"),
    [
        ("final_url", "eq", "https://shop.example/next", None, True),
        ("final_url", "matches", "/login$", None, False),
        ("redirects", "eq", 1, None, True),
        ("redirects", "lt", 1, None, False),
        ("redirects", "in", [0, 1], None, True),
        ("remote_address", "contains", "192.0.2.1", None, True),
        ("remote_address", "in", ["192.0.2.2:443"], None, False),
        ("http_version", "eq", "2", None, False),
        ("http_version", "in", ["1.1", "2"], None, True),
        ("body_bytes", "eq", 9, None, True),
        ("body_bytes", "gt", 9, None, False),
        ("timing", "lte", 100, "first_byte", True),
        ("timing", "lt", 3, "tls", False),
        ("timing", "lt", 114, "total", True),
        ("json_schema", "matches", {"required": ["id"], "properties": {"id": {"type": "integer"}}}, None, True),
        ("json_schema", "matches", {"required": ["name"]}, None, False),
    ],
)
def test_what_else_can_be_asserted(source: str, operator: str, value: Any, path: str | None, passes: bool) -> None:
    verdict = judged({"source": source, "operator": operator, "value": value, "path": path})
    assert kind(verdict) == (None if passes else "assertion_failed")
    assert verdict.assertions[1].passed is passes


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"<html>", "json_error"), (b"[" * 5000, "json_error"), (b"null", "assertion_failed")],
)
def test_a_schema_needs_json(body: bytes, expected: str) -> None:
    schema = {"source": "json_schema", "operator": "matches", "value": {"type": "object"}}
    assert kind(judged(schema, seen={"body": body})) == expected


@pytest.mark.parametrize(
    ("auth", "final_url", "expected"),
    [
        ({"kind": "bearer", "token": "t"}, "https://shop.example/next", "auth_failed"),
        ({"kind": "basic", "username": "u", "password": "p"}, "https://shop.example/", "auth_failed"),
        ({"kind": "bearer", "token": "t"}, "https://other.example/", "status_code"),
        (None, "https://shop.example/", "status_code"),
    ],
)
def test_a_401_is_about_credentials_where_some_were_sent(auth: Any, final_url: str, expected: str) -> None:
    assert kind(judged(auth=auth, seen={"status_code": 401, "final_url": final_url})) == expected


@pytest.mark.parametrize(
    ("error", "status", "inverted"),
    [
        (None, 200, ResultStatus.DOWN),
        (None, 500, ResultStatus.UP),
        (ErrorKind.CONNECT_REFUSED, None, ResultStatus.UP),
        (ErrorKind.TIMEOUT, None, ResultStatus.UP),
        (ErrorKind.BLOCKED_TARGET, None, ResultStatus.DOWN),
        (ErrorKind.CONFIG_ERROR, None, ResultStatus.DOWN),
    ],
)
def test_inversion_turns_what_is_about_the_target(
    error: ErrorKind | None, status: int | None, inverted: ResultStatus
) -> None:
    seen = {"status_code": status, "error": CheckError(error, "it is so") if error else None}
    verdict = judged(seen=seen, invert=True)
    assert verdict.status is inverted
    assert (verdict.error is None) is (inverted is ResultStatus.UP)
    if error in {ErrorKind.BLOCKED_TARGET, ErrorKind.CONFIG_ERROR}:
        assert kind(verdict) == error


OAUTH2 = {"kind": "oauth2", "token_url": "https://t.example/", "client_id": "a", "client_secret": "b"}
PROXY = {"url": "http://proxy.example:8080"}
DIALLED = "192.0.2.9:8080"


@pytest.mark.parametrize(
    ("fields", "error", "addresses", "inverted"),
    [
        pytest.param({"auth": OAUTH2}, ErrorKind.AUTH_FAILED, (), False, id="no token"),
        pytest.param({"proxy": PROXY}, ErrorKind.AUTH_FAILED, ((DIALLED, None),), False, id="refused by the proxy"),
        pytest.param({"proxy": PROXY}, ErrorKind.DNS_NXDOMAIN, (), False, id="no such proxy"),
        pytest.param(
            {"proxy": PROXY},
            ErrorKind.CONNECT_REFUSED,
            ((DIALLED, ErrorKind.CONNECT_REFUSED),),
            False,
            id="no proxy listens",
        ),
        pytest.param(
            {"proxy": PROXY}, ErrorKind.CONNECT_REFUSED, ((DIALLED, None),), True, id="refused behind the proxy"
        ),
        pytest.param(
            {}, ErrorKind.CONNECT_REFUSED, ((DIALLED, ErrorKind.CONNECT_REFUSED),), True, id="target refuses"
        ),
    ],
)
def test_what_kept_us_from_asking_is_not_inverted(
    fields: dict[str, Any], error: ErrorKind, addresses: Any, *, inverted: bool
) -> None:
    seen = {"status_code": None, "error": CheckError(error, "it is so"), "addresses": addresses}
    verdict = judged(seen=seen, invert=True, **fields)
    assert verdict.status is (ResultStatus.UP if inverted else ResultStatus.DOWN)
    assert kind(verdict) == (None if inverted else error)


def test_a_number_beyond_all_floats_is_shown_and_stored() -> None:
    limit = {"source": "json", "path": "$.id", "operator": "lt", "value": 5}
    for body, shown in ((b'{"id": 1e999}', "Infinity"), (b'{"id": [-1e999]}', ["-Infinity"])):
        outcome = judged(limit, seen={"body": body}).assertions[1]
        assert not outcome.passed
        assert outcome.actual == shown


@pytest.mark.parametrize("body", [b'{"id": 5}', b"<html>"], ids=["a document", "none"])
def test_a_document_is_read_once_for_all_assertions(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    reads = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return json.loads(*arguments, **options)

    monkeypatch.setattr(observation, "json", SimpleNamespace(loads=counted))
    judged(*[{"source": "json", "path": "$.id", "operator": "exists"}] * 30, seen={"body": body})
    assert reads == 1


def test_degraded_is_not_down_when_down_is_expected() -> None:
    slow = {"source": "response_time_ms", "operator": "lt", "value": 1, "severity": "degraded"}
    assert judged(slow).status is ResultStatus.DEGRADED
    assert judged(slow, invert=True).status is ResultStatus.DOWN


def test_evidence_is_there_unless_all_is_well() -> None:
    seen = {"addresses": (("192.0.2.1:443", None),), "headers": (("x-a", "1"),)}
    assert judged(seen=seen).evidence is None
    evidence = judged(seen={**seen, "status_code": 500}).evidence
    assert evidence
    assert evidence.addresses == (AddressTried("192.0.2.1:443"),)
    assert evidence.headers == seen["headers"]
    assert evidence.body == '{"id": 5}'


@pytest.mark.parametrize("place", range(4060, 4100))
def test_a_secret_at_the_edge_of_the_excerpt_is_not_shown(place: int) -> None:
    body = b"hunter22" * (place // 8) + b"x" * (place % 8) + b"hunter22hunter22"
    verdict = judged(
        seen={"status_code": 500, "body": body}, auth={"kind": "basic", "username": "u", "password": "hunter22"}
    )
    assert verdict.evidence
    assert "hunt" not in str(verdict.evidence.body)


def test_a_final_url_of_any_length_is_judged_and_shown_in_part() -> None:
    verdict = judged(seen={"final_url": "https://shop.example/" + "%C3%BC" * 5000})
    assert verdict.http
    assert verdict.http.final_url
    assert len(verdict.http.final_url) == 1000
