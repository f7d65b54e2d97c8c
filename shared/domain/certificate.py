"""What a certificate says, read once per certificate: checks see the same few again and again."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shared.domain.clock import to_datetime
from shared.domain.comparison import bounded
from shared.domain.result import CertificateChange, CertificateFacts, ChangeKind

MAX_NAMES = 100
T = TypeVar("T")
_NAME_LIMIT = 300
_TOLD_LIMIT = 120
_TOLD_NAMES = 5
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
    key_kind: str | None = None
    key_bits: int | None = None
    public_key_sha256: str | None = None
    signature_hash: str | None = None
    signature_algorithm: str | None = None
    names_sha256: str | None = None
    self_issued: bool = False

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return self.subject or ", ".join(self.sans[:2]) or f"with the fingerprint {self.fingerprint_sha256[:16]}"


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
            sans=_or_none(lambda: _shown_names(parsed)) or (),
            names_sha256=_or_none(lambda: _names_hash(parsed)),
            serial=_or_none(lambda: _hexadecimal(parsed.serial_number)),
            not_before=_or_none(lambda: parsed.not_valid_before_utc),
            not_after=_or_none(lambda: parsed.not_valid_after_utc),
            key_kind=_or_none(lambda: _key_kind(parsed.public_key())),
            key_bits=_or_none(lambda: _key_bits(parsed.public_key())),
            public_key_sha256=_or_none(lambda: _key_hash(parsed.public_key())),
            signature_hash=_or_none(lambda: _hash_name(parsed)),
            signature_algorithm=_or_none(lambda: _algorithm(parsed)),
            self_issued=_or_none(lambda: parsed.subject == parsed.issuer) or False,
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


def _alternative_names(parsed: x509.Certificate) -> Iterator[str]:
    try:
        extension = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return
    yield from (str(name.value) for name in extension.value)


def _shown_names(parsed: x509.Certificate) -> tuple[str, ...]:
    return tuple(str(bounded(name, _NAME_LIMIT)) for name in islice(_alternative_names(parsed), MAX_NAMES))


def _names_hash(parsed: x509.Certificate) -> str:
    return hashlib.sha256("\n".join(sorted(set(_alternative_names(parsed)))).encode()).hexdigest()


def _key_kind(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return "RSA"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    return "DSA" if isinstance(key, dsa.DSAPublicKey) else type(key).__name__.removesuffix("PublicKey")


def _key_bits(key: object) -> int | None:
    if isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | dsa.DSAPublicKey):
        return key.key_size
    return None


def _key_hash(key: Any) -> str:
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _hash_name(parsed: x509.Certificate) -> str | None:
    algorithm = parsed.signature_hash_algorithm
    return algorithm.name if algorithm else None


def _algorithm(parsed: x509.Certificate) -> str:
    oid = parsed.signature_algorithm_oid
    name: str = getattr(oid, "_name", "")  # the library keeps its own table of names private
    return name if name and name != "Unknown OID" else oid.dotted_string


def days_until(moment: datetime, now_ms: int) -> int:
    """Whole days left, rounded down: 0 on the last day, negative once the moment has passed."""
    return (moment - to_datetime(now_ms)) // _DAY


def first_to_end(path: tuple[bytes, ...]) -> Certificate | None:
    """The certificate that ends a path (leaf first): a path is valid no longer than any of its parts."""
    ends = [(each.not_after, each) for each in map(read_certificate, path) if each.not_after]
    return min(ends, key=lambda end: end[0])[1] if ends else None


def days_left(path: tuple[bytes, ...], now_ms: int) -> int | None:
    """Days until the first certificate of a validated path ends (leaf first); null when no end is known."""
    first = first_to_end(path)
    return days_until(first.not_after, now_ms) if first and first.not_after else None


def lifetime_left_percent(certificate: Certificate, now_ms: int) -> float | None:
    """How much of its lifetime a certificate has left; null when it does not say, negative once it has ended."""
    if certificate.not_after is None or certificate.not_before is None:
        return None
    lifetime = certificate.not_after - certificate.not_before
    return 100 * ((certificate.not_after - to_datetime(now_ms)) / lifetime) if lifetime else None


def certificate_facts(leaf: bytes, path: tuple[bytes, ...], now_ms: int) -> CertificateFacts:
    """The leaf as a result shows it. Without a validated path the leaf's own end counts."""
    certificate = read_certificate(leaf)
    first = first_to_end(path or (leaf,))
    return CertificateFacts(
        subject=certificate.subject,
        issuer=certificate.issuer,
        sans=certificate.sans,
        serial=certificate.serial,
        fingerprint_sha256=certificate.fingerprint_sha256,
        not_before=certificate.not_before,
        not_after=certificate.not_after,
        days_left=days_left(path or (leaf,), now_ms),
        ends_first=first.name if first and first.fingerprint_sha256 != certificate.fingerprint_sha256 else None,
        key_kind=certificate.key_kind,
        key_bits=certificate.key_bits,
        public_key_sha256=certificate.public_key_sha256,
        signature_algorithm=certificate.signature_algorithm,
        names_sha256=certificate.names_sha256,
    )


def certificate_news(
    accepted: Sequence[CertificateFacts], shown: CertificateFacts
) -> tuple[CertificateChange, ...]:
    """What a certificate changes in comparison with the first of these, and with each of the others too.

    Backends take turns, and so do the intermediates of an authority: what one of them had before is no news. Those
    that could not be read are left out: in comparison with them nothing would ever be news.
    """
    compared = [certificate_changes(each, shown) for each in accepted if _is_readable(each)]
    if not compared:
        return ()
    kinds = set(ChangeKind).intersection(*({change.kind for change in changes} for changes in compared))
    return tuple(change for change in compared[0] if change.kind in kinds)


def _is_readable(facts: CertificateFacts) -> bool:
    return facts.issuer is not None and facts.public_key_sha256 is not None


def certificate_changes(before: CertificateFacts, after: CertificateFacts) -> tuple[CertificateChange, ...]:
    """What a renewal changed beside dates and serial; empty for an ordinary one.

    A fact that is null before was not seen, and is compared with nothing; one that is null after is hidden, which
    is a change.
    """
    changes = []
    if before.issuer is not None and before.issuer != after.issuer:
        now = "one that cannot be read" if after.issuer is None else _told(after.issuer)
        told = f"the issuer changed from {_told(before.issuer)} to {now}"
        changes.append(CertificateChange(ChangeKind.ISSUER, told))
    if before.public_key_sha256 and before.public_key_sha256 != after.public_key_sha256:
        told = "the key changed" if after.public_key_sha256 else "the key cannot be read"
        changes.append(CertificateChange(ChangeKind.KEY, told))
    changes += [CertificateChange(ChangeKind.NAMES, told) for told in _changed_names(before, after)]
    return tuple(changes)


def _changed_names(before: CertificateFacts, after: CertificateFacts) -> list[str]:
    """Lists that were cut short may differ by their order alone: of those only the hash tells."""
    hashes = {before.names_sha256, after.names_sha256}
    if before.names_sha256 is None and not before.sans:
        return []
    if len(hashes) == 1 and None not in hashes:
        return []
    if None not in hashes and max(len(before.sans), len(after.sans)) >= MAX_NAMES:
        return [f"names changed, among {MAX_NAMES} or more"]
    added, gone = sorted(set(after.sans) - set(before.sans)), sorted(set(before.sans) - set(after.sans))
    lists = (("names were added", added), ("names are gone", gone))
    return [f"{what}: {_listed(names)}" for what, names in lists if names]


def _told(name: str) -> str:
    return str(bounded(name, _TOLD_LIMIT))


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(_told, names[:_TOLD_NAMES]))
    return f"{shown} and {len(names) - _TOLD_NAMES} more" if len(names) > _TOLD_NAMES else shown
