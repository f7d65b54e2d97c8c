"""Ends and strength of certificates, and how both read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.certificate import (
    Certificate,
    certificate_changes,
    certificate_facts,
    lifetime_left_percent,
    read_certificate,
)
from shared.domain.clock import to_milliseconds
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import TlsPeer
from shared.domain.spec import TlsOptions
from shared.domain.tls_rules import (
    crossed_threshold,
    ended,
    expiring,
    explained,
    tls_facts,
    weak_certificate,
    weakness,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_MS = to_milliseconds(NOW)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@cache
def small_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 1024)  # noqa: S505 it is weak on purpose


def der(
    name: str = "a.example",
    *,
    ends: float = 60,
    starts: float = -30,
    key: Key | None = None,
    issuer: str = "issuer",
    sans: tuple[str, ...] = ("a.example",),
) -> bytes:
    """A certificate that is valid from and until so many days from now."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + timedelta(days=starts))
        .not_valid_after(NOW + timedelta(days=ends))
    )
    if sans:
        names = x509.SubjectAlternativeName([x509.DNSName(each) for each in sans])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def peer(*path: bytes, version: str = "TLSv1.3", verified: bool = True) -> TlsPeer:
    return TlsPeer(version, "cipher", path, path if verified else ())


def warning(options: dict[str, object], *path: bytes, verified: bool = True) -> str | None:
    found = expiring(TlsOptions.model_validate(options), peer(*path, verified=verified), "a.example", NOW_MS)
    return found.message if found else None


@pytest.mark.parametrize(("days", "threshold"), [(31, None), (30, 30), (15, 30), (14, 14), (8, 14), (7, 7), (0, 7)])
def test_tls_04_the_tightest_reached_threshold_counts_and_its_day_too(days: int, threshold: int | None) -> None:
    assert crossed_threshold(days, [30, 14, 7]) == threshold


def test_the_warning_names_the_tightest_threshold() -> None:
    assert warning({}, der(ends=9.5)) == "certificate of a.example expires in 9 days (warning at 14)"
    assert warning({}, der(ends=40)) is None
    assert warning({"expiry_warning_days": []}, der(ends=1)) is None


def test_the_part_of_the_path_that_ends_first_is_named() -> None:
    path = (der(ends=90), der("intermediate", ends=5.5), der("root", ends=900))
    told = "certificate CN=intermediate in the chain of a.example expires in 5 days (warning at 7)"
    assert warning({}, *path) == told
    facts = certificate_facts(path[0], path, NOW_MS)
    assert (facts.days_left, facts.ends_first) == (5, "CN=intermediate")
    # Without verification nobody knows the path, and what else a server sends is no part of it.
    assert warning({}, *path, verified=False) is None
    assert certificate_facts(path[0], (), NOW_MS).ends_first is None


def test_short_lives_are_warned_about_by_their_share() -> None:
    six_days = der(starts=-3, ends=3)
    assert warning({"expiry_warning_percent": 33}, six_days) is None
    told = "certificate of a.example expires in 3 days: 50 % of its lifetime is left (warning at 50 %)"
    assert warning({"expiry_warning_percent": 50}, six_days) == told
    assert warning({"expiry_warning_percent": 10, "expiry_warning_days": [7]}, six_days) is not None


def test_a_lifetime_of_nothing_has_no_share() -> None:
    assert lifetime_left_percent(read_certificate(der(starts=1, ends=1)), NOW_MS) is None
    assert lifetime_left_percent(read_certificate(b"no certificate"), NOW_MS) is None


def test_an_end_is_seen_without_verification() -> None:
    assert ended(peer(der(ends=1), verified=False), NOW_MS) is None
    assert ended(peer(der(ends=-1), verified=False), NOW_MS) is not None
    # Without a validated path, what else the server sends may be surplus: it decides nothing.
    assert ended(peer(der(ends=1), der(ends=-5), verified=False), NOW_MS) is None
    assert ended(peer(), NOW_MS) is None
    assert ended(None, NOW_MS) is None


@pytest.mark.parametrize(
    ("kind", "chain", "told"),
    [
        (ErrorKind.TLS_EXPIRED, [{"ends": -1.5}], "certificate of a.example expired 1 day ago"),
        (ErrorKind.TLS_EXPIRED, [{}, {"name": "old", "ends": -5}], "certificate CN=old in the chain of a.example"),
        (ErrorKind.TLS_EXPIRED, [{}], "as it was"),
        (ErrorKind.TLS_NOT_YET_VALID, [{"starts": 2}], "a.example is valid from 2026-12-02 12:00 UTC"),
        (ErrorKind.TLS_UNTRUSTED, [{"ends": -1}], "as it was"),
    ],
)
def test_errors_about_time_get_their_date(kind: ErrorKind, chain: list[dict[str, object]], told: str) -> None:
    certificates = [der(**fields) for fields in chain]  # type: ignore[arg-type]  # a table of keyword arguments
    error = explained(CheckError(kind, "as it was"), peer(*certificates, verified=False), "a.example", NOW_MS)
    assert error
    assert told in error.message


@pytest.mark.parametrize(
    ("kind", "chain", "told"),
    [
        pytest.param(
            ErrorKind.TLS_HOSTNAME_MISMATCH,
            [{"sans": ("b.example", "c.example")}],
            "the certificate is for b.example, c.example, not for a.example",
            id="other names",
        ),
        pytest.param(
            ErrorKind.TLS_HOSTNAME_MISMATCH,
            [{"sans": tuple(f"{number}.example" for number in range(9))}],
            "0.example, 1.example, 2.example and 6 more, not for a.example",
            id="many other names",
        ),
        pytest.param(ErrorKind.TLS_HOSTNAME_MISMATCH, [{"sans": ()}], "has no alternative names", id="no names"),
        pytest.param(
            ErrorKind.TLS_WEAK, [{}, {"name": "old", "key": "small"}], "certificate CN=old is weak", id="weak"
        ),
        pytest.param(ErrorKind.TLS_WEAK, [{}], "as it was", id="nothing weak"),
        pytest.param(
            ErrorKind.TLS_UNTRUSTED,
            [{}, {"name": "root", "issuer": "root"}],
            "certificate of a.example leads to CN=root, which is not trusted",
            id="unknown root",
        ),
        pytest.param(ErrorKind.TLS_UNTRUSTED, [{}], "as it was", id="root not sent"),
    ],
)
def test_errors_name_the_certificate_and_what_it_says(
    kind: ErrorKind, chain: list[dict[str, object]], told: str
) -> None:
    for fields in chain:
        if fields.get("key") == "small":
            fields["key"] = small_rsa()
    path = tuple(der(**fields) for fields in chain)  # type: ignore[arg-type]  # a table of keyword arguments
    error = explained(CheckError(kind, "as it was"), TlsPeer(None, None, path, ()), "a.example", NOW_MS)
    assert error
    assert error.kind is kind
    assert told in error.message


@pytest.mark.parametrize(
    ("version", "wanted", "weak"),
    [
        ("TLSv1", "1.2", True),
        ("TLSv1.1", "1.2", True),
        ("TLSv1.2", "1.2", False),
        ("TLSv1.2", "1.3", True),
        ("TLSv1.3", "1.3", False),
        ("TLSv1.1", "1.0", False),
        ("TLSv9", "1.3", False),
    ],
)
def test_a_protocol_below_the_wanted_one_is_weak(version: str, wanted: str, weak: bool) -> None:
    options = TlsOptions.model_validate({"min_version": wanted})
    assert (weakness(options, peer(der(), version=version)) is not None) is weak


def test_a_key_that_is_too_small_is_weak_where_the_path_counts() -> None:
    certificate = der(key=small_rsa())
    error = weakness(TlsOptions(), peer(certificate))
    assert error
    assert error.message == "certificate CN=a.example is weak: its RSA key has 1024 bits, 2048 is the least"
    assert weakness(TlsOptions(), peer(certificate, verified=False)) is None


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (Certificate("", key_kind="RSA", key_bits=2048, signature_hash="sha256"), None),
        (Certificate("", key_kind="RSA", key_bits=2047), "2048 is the least"),
        (Certificate("", key_kind="EC secp256r1", key_bits=256), None),
        (Certificate("", key_kind="EC secp192r1", key_bits=192), "224 is the least"),
        (Certificate("", key_kind="Ed25519"), None),
        (Certificate("", signature_hash="sha1"), "signed with SHA1"),
        (Certificate("", signature_hash="md5"), "signed with MD5"),
        (Certificate("", signature_hash="sha1", self_issued=True), None),
        (Certificate(""), None),
    ],
)
def test_keys_and_signatures_have_a_least_strength(certificate: Certificate, reason: str | None) -> None:
    found = weak_certificate(certificate)
    assert (found is None) if reason is None else (reason in (found or ""))


def test_facts_of_the_key_are_kept() -> None:
    facts = tls_facts(peer(der(key=small_rsa())), "192.0.2.1:443", NOW_MS, TlsOptions())
    assert facts
    assert facts.certificate
    assert (facts.certificate.key_kind, facts.certificate.key_bits) == ("RSA", 1024)
    assert facts.certificate.signature_algorithm == "sha256WithRSAEncryption"
    assert len(facts.certificate.public_key_sha256 or "") == 64


_SOUND = der()


@given(st.lists(st.tuples(st.integers(0, len(_SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_no_mutation_of_a_certificate_breaks_a_rule(changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(_SOUND)
    for place, byte in changes:
        mutated[place] = byte
    seen = peer(bytes(mutated), _SOUND)
    facts = tls_facts(seen, None, NOW_MS, TlsOptions())
    assert facts
    assert facts.certificate
    weakness(TlsOptions(), seen)
    ended(seen, NOW_MS)
    expiring(TlsOptions(expiry_warning_percent=50), seen, "a.example", NOW_MS)
    explained(CheckError(ErrorKind.TLS_EXPIRED, ""), seen, "a.example", NOW_MS)
    certificate_changes(facts.certificate, facts.certificate)


@given(st.binary(max_size=300))
def test_no_bytes_in_place_of_a_certificate_break_a_rule(junk: bytes) -> None:
    seen = peer(junk)
    assert tls_facts(seen, None, NOW_MS, TlsOptions())
    assert weakness(TlsOptions(), seen) is None
    assert expiring(TlsOptions(), seen, "a.example", NOW_MS) is None
