"""The table of verdicts for the kinds below HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.domain.checks import AnyCheck, DnsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evaluate import evaluate
from shared.domain.observation import TlsObservation
from shared.domain.observation_network import BannerEnd, DnsObservation, PingObservation, TcpObservation
from shared.domain.result import CheckVerdict, ResultStatus, Timings

NOW = 1_800_000_000_000
SEEN = Timings(dns=1, connect=2, total=50)
SLOW: dict[str, Any] = {"source": "response_time_ms", "operator": "lt", "value": 40, "severity": "degraded"}
REFUSED = CheckError(ErrorKind.CONNECT_REFUSED, "refused")


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


def tcp(received: bytes, end: BannerEnd | None, **fields: Any) -> CheckVerdict:
    spec = TcpCheck.model_validate({"host": "a.example", "port": 25, "expect": "^220", **fields})
    return evaluate(spec, TcpObservation(SEEN, "192.0.2.1:25", received=received, end=end), NOW)


@pytest.mark.parametrize(
    ("received", "end", "expected", "word"),
    [
        (b"220 mail", "match", None, ""),
        (b"", "deadline", "banner_timeout", "nothing came"),
        (b"", "closed", "banner_mismatch", "ended before"),
        (b"SSH-2.0-x\r\n", "deadline", "banner_mismatch", "11 bytes came, 'SSH-2.0-x\\r\\n', and did not match"),
        (b"5", "closed", "banner_mismatch", "1 byte came"),
        (b"x" * 65536, "limit", "banner_mismatch", "65536 bytes came"),
    ],
)
def test_a_banner(received: bytes, end: BannerEnd, expected: str | None, word: str) -> None:
    verdict = tcp(received, end)
    assert kind(verdict) == expected
    assert word in (verdict.error.message if verdict.error else "")
    assert verdict.tcp
    assert verdict.tcp.banner_bytes == len(received)
    assert len(verdict.tcp.banner or "") <= 200


def test_a_banner_of_any_bytes_is_shown_as_text() -> None:
    verdict = tcp(b"\xff\x00220", "deadline")
    assert verdict.tcp
    assert verdict.tcp.banner == "��220"


def test_without_an_expected_banner_a_connection_is_enough() -> None:
    assert tcp(b"", None, expect=None).status is ResultStatus.UP


def dns(*records: str, rcode: str | None = "NOERROR", **fields: Any) -> CheckVerdict:
    spec = DnsCheck.model_validate({"name": "shop.example", **fields})
    return evaluate(spec, DnsObservation(SEEN, "192.0.2.53:53", "udp", rcode, records, 300), NOW)


@pytest.mark.parametrize(
    ("rcode", "records", "expected", "word"),
    [
        ("NOERROR", ("192.0.2.1",), None, ""),
        ("NXDOMAIN", (), "dns_nxdomain", "shop.example does not exist, says 192.0.2.53:53"),
        ("NOERROR", (), "dns_no_data", "shop.example has no A record"),
        ("SERVFAIL", (), "dns_failure", "answered SERVFAIL"),
        ("REFUSED", (), "dns_failure", "answered REFUSED"),
        ("SERVFAIL", ("192.0.2.1",), "dns_failure", "SERVFAIL"),
    ],
)
def test_every_answer_code_has_its_own_kind(
    rcode: str, records: tuple[str, ...], expected: str | None, word: str
) -> None:
    for fields in ({}, {"expected": ["192.0.2.1"]}):
        verdict = dns(*records, rcode=rcode, **fields)
        assert kind(verdict) == expected
        assert word in (verdict.error.message if verdict.error else "")


@pytest.mark.parametrize(
    ("match", "expected", "found", "told"),
    [
        ("contains", ["192.0.2.1"], ["192.0.2.1", "192.0.2.2"], None),
        ("contains", ["192.0.2.3"], ["192.0.2.1", "192.0.2.2"], "missing 192.0.2.3; found 192.0.2.1, 192.0.2.2"),
        ("equals", ["192.0.2.2", "192.0.2.1"], ["192.0.2.1", "192.0.2.2"], None),
        ("equals", ["192.0.2.1"], ["192.0.2.1", "192.0.2.2"], "not expected 192.0.2.2; found"),
        ("equals", ["192.0.2.9"], ["192.0.2.1"], "missing 192.0.2.9; not expected 192.0.2.1; found 192.0.2.1"),
    ],
)
def test_expected_records(match: str, expected: list[str], found: list[str], told: str | None) -> None:
    verdict = dns(*found, match=match, expected=expected)
    assert kind(verdict) == ("record_mismatch" if told else None)
    assert (told or "") in (verdict.error.message if verdict.error else "")


@pytest.mark.parametrize(
    ("record", "expected", "found"),
    [
        ("MX", "10 mail.example", "10 Mail.Example."),
        ("TXT", "v=spf1 -all", "v=spf1 -all"),
        ("CAA", '0 issue "ca.example"', '0 issue "ca.example"'),
        ("AAAA", "2001:db8:0::1", "2001:db8::1"),
    ],
)
def test_records_are_compared_by_what_they_mean(record: str, expected: str, found: str) -> None:
    assert dns(found, record=record, match="equals", expected=[expected]).status is ResultStatus.UP


def test_what_was_found_is_bounded() -> None:
    verdict = dns(*(f"198.51.{high}.{low}" for high in range(4) for low in range(250)), expected=["192.0.2.1"])
    assert verdict.error
    assert len(verdict.error.message) < 200
    assert "and 995 more" in verdict.error.message
    assert verdict.dns
    assert (len(verdict.dns.records), verdict.dns.count) == (100, 1000)


def ping(received: int, sent: int = 4, **fields: Any) -> CheckVerdict:
    spec = PingCheck.model_validate({"host": "a.example", "count": sent, **fields})
    return evaluate(spec, PingObservation(SEEN, "192.0.2.1", sent, (10.0,) * received), NOW)


@pytest.mark.parametrize(
    ("received", "fields", "status", "error"),
    [
        (4, {}, "up", None),
        (1, {}, "up", None),
        (0, {}, "down", "timeout"),
        (3, {"degraded_loss_percent": 25}, "degraded", "assertion_failed"),
        (3, {"degraded_loss_percent": 26}, "up", None),
        (2, {"degraded_loss_percent": 25, "down_loss_percent": 50}, "down", "assertion_failed"),
        (0, {"down_loss_percent": 50}, "down", "timeout"),
    ],
)
def test_lost_echoes(received: int, fields: dict[str, Any], status: str, error: str | None) -> None:
    verdict = ping(received, **fields)
    assert (verdict.status, kind(verdict)) == (status, error)
    assert verdict.ping
    assert verdict.ping.received == received
    assert verdict.ping.loss_percent == 100 * (4 - received) / 4


def test_a_ping_that_sent_nothing_in_time_is_not_up() -> None:
    seen = PingObservation(SEEN, "192.0.2.1")
    assert evaluate(PingCheck(host="a.example"), seen, NOW).status is ResultStatus.DOWN


@pytest.mark.parametrize(
    ("spec", "seen"),
    [
        (TcpCheck.model_validate({"host": "a.example", "port": 1, "assertions": [SLOW]}), TcpObservation(SEEN)),
        (
            DnsCheck.model_validate({"name": "a.example", "assertions": [SLOW]}),
            DnsObservation(SEEN, rcode="NOERROR", records=("192.0.2.1",)),
        ),
        (
            PingCheck.model_validate({"host": "a.example", "assertions": [SLOW]}),
            PingObservation(SEEN, sent=1, round_trips=(50.0,)),
        ),
        (SslCheck.model_validate({"host": "a.example", "assertions": [SLOW]}), TlsObservation(SEEN)),
    ],
)
def test_every_kind_judges_its_time_and_keeps_its_errors(spec: AnyCheck, seen: Any) -> None:
    slow = evaluate(spec, seen, NOW)
    assert (slow.status, kind(slow)) == ("degraded", "assertion_failed")
    failed = evaluate(spec, replace(seen, error=REFUSED), NOW)
    assert (failed.status, failed.error) == ("down", REFUSED)
    assert failed.assertions[0].passed is False
    assert failed.timings_ms == SEEN


def test_of_all_addresses_the_worst_decides_and_is_named() -> None:
    good = TlsObservation(SEEN, "192.0.2.1:443")
    bad = TlsObservation(SEEN, "192.0.2.2:443", error=REFUSED)
    spec = SslCheck(host="a.example", addresses="all")
    verdict = evaluate(spec, TlsObservation(SEEN, each=(good, bad, good)), NOW)
    assert verdict.status is ResultStatus.DOWN
    assert verdict.error
    assert verdict.error.message == "192.0.2.2:443, one of 3 addresses: refused"
    assert verdict.tls
    assert [each.status.value for each in verdict.tls.addresses] == ["up", "down", "up"]
    assert evaluate(spec, TlsObservation(SEEN, each=(good, good)), NOW).status is ResultStatus.UP


def test_an_observation_of_another_kind_is_our_own_fault() -> None:
    with pytest.raises(TypeError, match="kind tcp was handed PingObservation"):
        evaluate(TcpCheck(host="a.example", port=1), PingObservation(SEEN), NOW)
