"""What a certificate says, read once per certificate: checks see the same few again and again."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from cryptography import x509

from shared.domain.clock import to_datetime
from shared.domain.comparison import bounded
from shared.domain.result import CertificateFacts

MAX_NAMES = 100
T = TypeVar("T")
_NAME_LIMIT = 300
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The facts of one certificate that do not change with time; null where they could not be read."""

    fingerprint_sha256: str
    subject: str | None = None
    issuer: str | None = None
    sans: tuple[str, ...] = ()
    serial: str | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None


@lru_cache(maxsize=2048)
def read_certificate(der: bytes) -> Certificate:
    """Never raises: a certificate that OpenSSL accepted and this parser does not still has its fingerprint."""
    fingerprint = hashlib.sha256(der).hexdigest()
    with warnings.catch_warnings():
        # Odd serials and dates are in the wild; today's deprecation must not become tomorrow's outage.
        warnings.simplefilter("ignore")
        parsed = _or_none(lambda: x509.load_der_x509_certificate(der))
        if parsed is None:
            return Certificate(fingerprint)
        return Certificate(
            fingerprint,
            subject=_or_none(lambda: _name(parsed.subject)),
            issuer=_or_none(lambda: _name(parsed.issuer)),
            sans=_or_none(lambda: _alternative_names(parsed)) or (),
            serial=_or_none(lambda: _hexadecimal(parsed.serial_number)),
            not_before=_or_none(lambda: parsed.not_valid_before_utc),
            not_after=_or_none(lambda: parsed.not_valid_after_utc),
        )


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:  # noqa: BLE001 - the parser's errors are many, and none of them may decide a verdict
        return None


def _name(name: x509.Name) -> str:
    return str(bounded(name.rfc4514_string(), _NAME_LIMIT))


def _hexadecimal(serial: int) -> str:
    return f"-{-serial:x}" if serial < 0 else f"{serial:x}"


def _alternative_names(parsed: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    names = (str(bounded(str(name.value), _NAME_LIMIT)) for name in extension.value)
    return tuple(name for name, _ in zip(names, range(MAX_NAMES), strict=False))


def days_until(moment: datetime, now_ms: int) -> int:
    """Whole days left, rounded down: 0 on the last day, negative once the moment has passed."""
    return (moment - to_datetime(now_ms)) // _DAY


def days_left(path: tuple[bytes, ...], now_ms: int) -> int | None:
    """Days until the first certificate of a validated path ends (leaf first); null when no end is known."""
    ends = [certificate.not_after for certificate in map(read_certificate, path) if certificate.not_after]
    return min((days_until(end, now_ms) for end in ends), default=None)


def certificate_facts(leaf: bytes, path: tuple[bytes, ...], now_ms: int) -> CertificateFacts:
    """The leaf as a result shows it. Without a validated path the leaf's own end counts."""
    certificate = read_certificate(leaf)
    return CertificateFacts(
        subject=certificate.subject,
        issuer=certificate.issuer,
        sans=certificate.sans,
        serial=certificate.serial,
        fingerprint_sha256=certificate.fingerprint_sha256,
        not_before=certificate.not_before,
        not_after=certificate.not_after,
        days_left=days_left(path or (leaf,), now_ms),
    )
