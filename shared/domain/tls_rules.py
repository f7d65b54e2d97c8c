"""What is wrong with a handshake that worked, and what will be: strength, ends, and how both read in a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.certificate import (
    Certificate,
    certificate_facts,
    days_until,
    first_to_end,
    lifetime_left_percent,
    read_certificate,
)
from shared.domain.clock import to_datetime
from shared.domain.comparison import bounded
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import TlsPeer
from shared.domain.result import TlsFacts
from shared.domain.spec import TlsOptions

MAX_CHAIN = 10
"""Certificates of a chain that a result names; servers may send any number."""

MIN_RSA_BITS = 2048
MIN_EC_BITS = 224
_VERSIONS = ("SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_WANTED = {"1.0": "TLSv1", "1.1": "TLSv1.1", "1.2": "TLSv1.2", "1.3": "TLSv1.3"}
_WEAK_HASHES = frozenset({"md5", "sha1"})
_NAME_LIMIT = 120
_NAMES = 3
"""Names of a certificate that a sentence lists."""


def tls_facts(
    peer: TlsPeer | None, remote_address: str | None, now_ms: int, options: TlsOptions | None
) -> TlsFacts | None:
    """What a result keeps of a handshake; null where there was none."""
    if peer is None:
        return None
    return TlsFacts(
        expiry_warning=_reached_warning(peer, now_ms, options) if options else None,
        version=peer.version,
        cipher=peer.cipher,
        remote_address=remote_address,
        certificate=certificate_facts(peer.chain[0], peer.path, now_ms) if peer.chain else None,
        chain=tuple(read_certificate(der).subject or "" for der in peer.chain[:MAX_CHAIN]),
    )


def _reached_warning(peer: TlsPeer, now_ms: int, options: TlsOptions) -> int | None:
    first = first_to_end(peer.path or peer.chain[:1]) if options.expiry_warning_days else None
    if first is None or first.not_after is None:
        return None
    return crossed_threshold(days_until(first.not_after, now_ms), options.expiry_warning_days)


def weakness(options: TlsOptions, peer: TlsPeer | None) -> CheckError | None:
    """A protocol below the wanted one; where the path was validated, also a key or signature that is too weak."""
    if peer is None:
        return None
    if peer.version in _VERSIONS and _rank(peer.version) < _rank(_WANTED[options.min_version]):
        wording = f"the server speaks {peer.version}, and at least TLS {options.min_version} is wanted"
        return CheckError(ErrorKind.TLS_WEAK, wording)
    told = _weak(map(read_certificate, peer.path))
    return CheckError(ErrorKind.TLS_WEAK, told) if told else None


def _rank(version: str) -> int:
    return _VERSIONS.index(version)


def weak_certificate(certificate: Certificate) -> str | None:
    """Why its key or its signature is too weak, or null."""
    kind, bits = certificate.key_kind or "", certificate.key_bits
    least = MIN_EC_BITS if kind.startswith("EC ") else MIN_RSA_BITS
    if bits is not None and bits < least:
        return f"its {kind} key has {bits} bits, {least} is the least"
    # A root is trusted by being installed: nobody looks at its own signature.
    if certificate.signature_hash in _WEAK_HASHES and not certificate.self_issued:
        return f"it is signed with {certificate.signature_hash.upper()}"
    return None


def ended(peer: TlsPeer | None, now_ms: int) -> CheckError | None:
    """An end that nobody verified; ``explained`` words it."""
    first = first_to_end(peer.path or peer.chain[:1]) if peer else None
    if first and first.not_after and days_until(first.not_after, now_ms) < 0:
        return CheckError(ErrorKind.TLS_EXPIRED, "the certificate has expired")
    return None


def explained(error: CheckError | None, peer: TlsPeer | None, host: str, now_ms: int) -> CheckError | None:
    """Say which certificate an error is about, and what it says instead; only here both are known."""
    if error is None or peer is None or not peer.chain:
        return error
    chain = [read_certificate(der) for der in peer.chain[:MAX_CHAIN]]
    told = None
    match error.kind:
        case ErrorKind.TLS_EXPIRED:
            told = _expired(chain, host, now_ms)
        case ErrorKind.TLS_NOT_YET_VALID:
            told = _not_yet_valid(chain, host, now_ms)
        case ErrorKind.TLS_HOSTNAME_MISMATCH:
            told = _for_others(chain[0], host)
        case ErrorKind.TLS_UNTRUSTED if chain[-1].self_issued:
            told = f"certificate of {host} leads to {_shown(chain[-1])}, which is not trusted"
        case ErrorKind.TLS_WEAK if peer.version is None:  # the handshake failed, and did not say by which one
            told = _weak(chain)
    return CheckError(error.kind, told) if told else error


def _expired(chain: list[Certificate], host: str, now_ms: int) -> str | None:
    for certificate in chain:
        if certificate.not_after and (days := days_until(certificate.not_after, now_ms)) < 0:
            return f"{_which(certificate, chain[0], host)} expired {_days_text(-days - 1)} ago"
    return None


def _not_yet_valid(chain: list[Certificate], host: str, now_ms: int) -> str | None:
    for certificate in chain:
        if certificate.not_before and certificate.not_before > to_datetime(now_ms):
            return (
                f"{_which(certificate, chain[0], host)} is valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC"
            )
    return None


def _for_others(leaf: Certificate, host: str) -> str:
    if not leaf.sans:
        return f"the certificate has no alternative names, and clients look for {host} nowhere else"
    more = f" and {len(leaf.sans) - _NAMES} more" if len(leaf.sans) > _NAMES else ""
    return f"the certificate is for {bounded(', '.join(leaf.sans[:_NAMES]), _NAME_LIMIT)}{more}, not for {host}"


def _weak(chain: Iterable[Certificate]) -> str | None:
    for certificate in chain:
        if reason := weak_certificate(certificate):
            return f"certificate {_shown(certificate)} is weak: {reason}"
    return None


def crossed_threshold(days: int, thresholds: Iterable[int]) -> int | None:
    """The tightest threshold that has been reached; the day itself counts."""
    return min((threshold for threshold in thresholds if days <= threshold), default=None)


def expiring(options: TlsOptions, peer: TlsPeer | None, host: str, now_ms: int) -> CheckError | None:
    """The warning about the end that comes first, by days or by the share of the lifetime that is left."""
    first = first_to_end(peer.path or peer.chain[:1]) if peer else None
    if peer is None or first is None or first.not_after is None:
        return None
    days, percent = days_until(first.not_after, now_ms), lifetime_left_percent(first, now_ms)
    expires = f"{_which(first, read_certificate(peer.chain[0]), host)} expires in {_days_text(days)}"
    threshold = crossed_threshold(days, options.expiry_warning_days)
    if threshold is not None:
        return CheckError(ErrorKind.ASSERTION_FAILED, f"{expires} (warning at {threshold})")
    least = options.expiry_warning_percent
    if least is not None and percent is not None and percent <= least:
        left = f"{percent:.0f} % of its lifetime is left (warning at {least:g} %)"
        return CheckError(ErrorKind.ASSERTION_FAILED, f"{expires}: {left}")
    return None


def _which(certificate: Certificate, leaf: Certificate, host: str) -> str:
    if certificate.fingerprint_sha256 == leaf.fingerprint_sha256:
        return f"certificate of {host}"
    return f"certificate {_shown(certificate)} in the chain of {host}"


def _shown(certificate: Certificate) -> str:
    return str(bounded(certificate.name, _NAME_LIMIT))


def _days_text(days: int) -> str:
    if days == 0:
        return "less than a day"
    return f"{days} day" if days == 1 else f"{days} days"
