"""Certificates as data: days left, and parsers that may fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from shared.domain.certificate import certificate_facts, days_left, days_until, read_certificate
from shared.domain.clock import to_milliseconds

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_MS = to_milliseconds(NOW)


@pytest.mark.parametrize(
    ("left", "days"),
    [
        (timedelta(days=30), 30),
        (timedelta(days=7) - timedelta(hours=1), 6),
        (timedelta(hours=1), 0),
        (timedelta(0), 0),
        (timedelta(seconds=-1), -1),
        (timedelta(days=-2), -2),
    ],
)
def test_days_left_are_whole_days_rounded_down(left: timedelta, days: int) -> None:
    assert days_until(NOW + left, NOW_MS) == days


def test_a_certificate_without_a_defined_end_has_years_left() -> None:
    assert days_until(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), NOW_MS) > 2_900_000


def der(ends_in_days: int) -> bytes:
    leaf = trustme.CA().issue_cert("a.example", not_after=NOW + timedelta(days=ends_in_days))
    return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)


def test_the_first_end_of_the_validated_path_counts() -> None:
    leaf, issuer = der(90), der(5)
    assert days_left((leaf, issuer), NOW_MS) == 5
    assert certificate_facts(leaf, (leaf, issuer), NOW_MS).days_left == 5
    assert certificate_facts(leaf, (), NOW_MS).days_left == 90


def test_what_cannot_be_parsed_still_has_a_fingerprint() -> None:
    facts = certificate_facts(b"no certificate", (), NOW_MS)
    assert (facts.subject, facts.not_after, facts.days_left) == (None, None, None)
    assert len(facts.fingerprint_sha256) == 64


def test_a_certificate_is_parsed_once() -> None:
    leaf = der(90)
    assert read_certificate(leaf) is read_certificate(bytes(bytearray(leaf)))
