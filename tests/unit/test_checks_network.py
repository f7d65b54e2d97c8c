"""What checks below HTTP may look like, and how a refusal reads."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from api.v1.checks.schemas import Preview
from shared.domain.checks import AnyCheck, CheckKind, CheckSpec, SslCheck, TlsOptions
from shared.domain.monitor import MonitorSpec

ADAPTER: TypeAdapter[AnyCheck] = TypeAdapter(CheckSpec)
SLOW = {"source": "response_time_ms", "operator": "lt", "value": 100}
STATUS = {"source": "status", "operator": "eq", "value": 200}
GOOD: list[dict[str, Any]] = [
    {"kind": "ssl", "host": "a.example", "addresses": "all", "tls": {"expiry_warning_percent": 20}},
    {"kind": "ssl", "host": "a.example", "starttls": "smtp", "port": 25, "assertions": [SLOW]},
    {"kind": "tcp", "host": "::1", "port": 22, "expect": "^SSH", "assertions": [SLOW]},
    {"kind": "tcp", "host": "a.example", "port": 6380, "tls": {}, "send": r"PING\r\n", "expect": r"\+PONG"},
    {"kind": "dns", "name": "a.example", "record": "MX", "resolver": "::1", "expected": ["10 mail.example"]},
    {"kind": "ping", "host": "a.example", "count": 5, "degraded_loss_percent": 20, "assertions": [SLOW]},
]


@pytest.mark.parametrize("fields", GOOD)
def test_a_check_survives_storage_unchanged(fields: dict[str, Any]) -> None:
    check = ADAPTER.validate_python(fields)
    assert ADAPTER.validate_json(check.model_dump_json()) == check


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"kind": "tcp", "host": "a.example"}, "port", "required"),
        ({"kind": "tcp", "host": "127.1", "port": 1}, "host", "four decimal numbers"),
        ({"kind": "tcp", "host": "a.example", "port": 0}, "port", "greater"),
        ({"kind": "tcp", "host": "a.example", "port": 1, "send": r"\q"}, "send", "not an escape"),
        ({"kind": "tcp", "host": "a.example", "port": 1, "expect": "("}, "expect", "RE2"),
        ({"kind": "tcp", "host": "a.example", "port": 1, "expect": "(?=a)"}, "expect", "RE2"),
        ({"kind": "tcp", "host": "a.example", "port": 1, "assertions": [STATUS]}, "assertions", "TCP check"),
        ({"kind": "tcp", "host": "a.example", "port": 1, "server_name": "b.example"}, "", "server_name"),
        ({"kind": "dns", "name": "a..b"}, "name", "not a name"),
        ({"kind": "dns", "name": "a.example", "record": "ANY"}, "record", "'A'"),
        ({"kind": "dns", "name": "a.example", "resolver": "a b"}, "resolver", "host name"),
        ({"kind": "dns", "name": "a.example", "expected": ["::1"]}, "expected", "IPv4"),
        ({"kind": "dns", "name": "a.example", "match": "equals"}, "", "expected"),
        ({"kind": "dns", "name": "a.example", "port": 5353}, "", "'resolver'"),
        ({"kind": "tcp", "host": "::1", "port": 1, "ip_family": "4"}, "", "IPv4"),
        ({"kind": "ssl", "host": "127.0.0.1", "ip_family": "6"}, "", "IPv6"),
        ({"kind": "ping", "host": "::1", "ip_family": "4"}, "", "IPv4"),
        ({"kind": "ping", "host": "a.example", "count": 0}, "count", "greater"),
        ({"kind": "ping", "host": "a.example", "interval_ms": 1}, "interval_ms", "100"),
        ({"kind": "ping", "host": "a.example", "degraded_loss_percent": 100}, "", "below down_loss_percent"),
        ({"kind": "ping", "host": "a b"}, "host", "host name"),
        ({"kind": "ssl", "host": "a.example", "starttls": "gopher"}, "starttls", "'smtp'"),
        ({"kind": "ssl", "host": "a.example", "tls": {"min_version": "2"}}, "tls.min_version", "'1.2'"),
        ({"kind": "ssl", "host": "a.example", "tls": {"expiry_warning_percent": 0}}, "tls.", "greater"),
    ],
)
def test_a_refusal_names_the_field_and_the_mend(fields: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(fields)
    (error,) = caught.value.errors()
    assert ".".join(map(str, error["loc"][1:])).startswith(field)
    assert word in error["msg"]


@pytest.mark.parametrize("spec", [MonitorSpec, Preview])
def test_echoes_that_take_longer_than_the_timeout_are_refused(spec: type[MonitorSpec | Preview]) -> None:
    """Those sent last would be lost whatever the target does."""
    check = {"kind": "ping", "host": "a.example", "count": 3, "interval_ms": 5000}
    more = {"name": "x"} if spec is MonitorSpec else {}
    with pytest.raises(ValidationError, match="3 echoes take 10 s"):
        spec.model_validate({"check": check, "timeout_seconds": 10, **more})
    spec.model_validate({"check": check, "timeout_seconds": 10.5, **more})


def test_every_kind_has_its_name() -> None:
    assert [get_args(spec.model_fields["kind"].annotation)[0] for spec in get_args(AnyCheck)] == list(
        get_args(CheckKind)
    )


def test_starttls_brings_its_port() -> None:
    assert SslCheck.model_validate({"host": "a.example", "starttls": "imap"}).port == 143
    assert SslCheck.model_validate({"host": "a.example", "starttls": "imap", "port": 1143}).port == 1143
    assert SslCheck.model_validate({"host": "a.example"}).port == 443


def test_a_percentage_alone_replaces_the_days() -> None:
    assert TlsOptions.model_validate({"expiry_warning_percent": 20}).expiry_warning_days == []
    both = TlsOptions.model_validate({"expiry_warning_percent": 20, "expiry_warning_days": [3]})
    assert both.expiry_warning_days == [3]
    assert TlsOptions().expiry_warning_days == [30, 14, 7]
