"""Why a handshake failed, by name and in words that lead to the mend."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from shared.domain.errors import ErrorKind
from shared.http.errors import TargetError


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a handshake came before it failed.

    ``linked`` certificates could be joined to a path; ``shown`` is whether the server has shown its own;
    ``offered`` are the protocols offered (ALPN); ``client`` is whether a client certificate was at hand;
    ``alert`` is the number of the server's alert, where that is known beside the library's name for it.
    """

    linked: int = 0
    shown: bool = False
    offered: tuple[str, ...] = ()
    client: bool = False
    alert: int | None = None

    @property
    def misses_client(self) -> bool:
        """Whether what the server objects to may be that no client certificate came: ciphers are agreed on."""
        return self.shown and not self.client


_VERIFY_KINDS = {
    9: ErrorKind.TLS_NOT_YET_VALID,
    10: ErrorKind.TLS_EXPIRED,
    18: ErrorKind.TLS_SELF_SIGNED,
    62: ErrorKind.TLS_HOSTNAME_MISMATCH,
    64: ErrorKind.TLS_HOSTNAME_MISMATCH,
    66: ErrorKind.TLS_WEAK,  # end entity key too small
    67: ErrorKind.TLS_WEAK,  # authority key too small
    68: ErrorKind.TLS_WEAK,  # authority digest too weak
}
_ISSUER_NOT_FOUND = frozenset({2, 20, 21})
_MESSAGES = {
    ErrorKind.TLS_EXPIRED: "a certificate of the chain has expired",
    ErrorKind.TLS_NOT_YET_VALID: "a certificate of the chain is not valid yet",
    ErrorKind.TLS_SELF_SIGNED: "the certificate is signed by nobody but itself",
    ErrorKind.TLS_WEAK: "a certificate is too weak for this machine's security level",
}
_NO_APPLICATION_PROTOCOL = 120
_TOO_WEAK = {
    "PROTOCOL_VERSION": "the server speaks none of the versions of TLS that are wanted",
    "UNSUPPORTED_PROTOCOL": "the server speaks none of the versions of TLS that are wanted",
    "DH_KEY_TOO_SMALL": "the server's Diffie-Hellman key is too small",
    "KEY_TOO_SMALL": "a key of the server is too small",
    "LEGACY_SIGALG_DISALLOWED_OR_UNSUPPORTED": "the server signs its part of the handshake with a weak algorithm",
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED": "the server does not know secure renegotiation (RFC 5746)",
}
# What servers say about the certificate of a client. Where none was shown, its absence is what they mean: before
# TLS 1.3 there is no alert for that, and each library takes another one.
_ABOUT_CLIENT = {
    "ALERT_BAD_CERTIFICATE": "it is broken, or its signature is",
    "ALERT_UNSUPPORTED_CERTIFICATE": "it is of a kind that the server does not take",
    "ALERT_CERTIFICATE_REVOKED": "it has been revoked",
    "ALERT_CERTIFICATE_EXPIRED": "it has expired, or is not valid yet",
    "ALERT_CERTIFICATE_UNKNOWN": "the server does not accept it",
    "ALERT_UNKNOWN_CA": "the server does not know its issuer",
    "ALERT_ACCESS_DENIED": "its owner has no access",
}
_SAID_FOR_ABSENCE = frozenset({*_ABOUT_CLIENT, "ALERT_HANDSHAKE_FAILURE", "ALERT_DECODE_ERROR"})
_PLAIN = {
    "WRONG_VERSION_NUMBER": "the answer is not TLS; does this port speak plain text?",
    "ALERT_HANDSHAKE_FAILURE": "the server ended it (no common cipher, or it wants a client certificate)",
    "ALERT_INSUFFICIENT_SECURITY": "the server wants stronger ciphers than this machine offers",
    "ALERT_INTERNAL_ERROR": "the server reports an error of its own; has it a certificate for this name?",
    "UNRECOGNIZED_NAME": "the server does not know the name it was asked for (SNI)",
}
_PREFIXES = ("SSLV3_", "TLSV1_", "TLSV13_")


def handshake_error(error: ssl.SSLError, progress: Progress) -> TargetError:
    """Name the failure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification_error(error, progress.linked)
    if isinstance(error, ssl.SSLZeroReturnError):
        return handshake_cut_short()
    if progress.alert == _NO_APPLICATION_PROTOCOL:
        return _no_protocol(progress.offered)
    return _failure(error.reason or _unnamed(progress.alert), progress)


def _unnamed(alert: int | None) -> str:
    return "unknown" if alert is None else f"ALERT_ALERT_{alert}"


def _failure(reason: str, progress: Progress) -> TargetError:
    bare = next((reason.removeprefix(prefix) for prefix in _PREFIXES if reason.startswith(prefix)), reason)
    if told := next((told for name, told in _TOO_WEAK.items() if bare.endswith(name)), None):
        return TargetError(ErrorKind.TLS_WEAK, f"the TLS handshake failed: {told}")
    if bare == "ALERT_CERTIFICATE_REQUIRED" or (progress.misses_client and bare in _SAID_FOR_ABSENCE):
        return TargetError(ErrorKind.TLS_CLIENT_CERT_REQUIRED, "the server demands a client certificate")
    if progress.client and (told := _ABOUT_CLIENT.get(bare)):
        return TargetError(ErrorKind.TLS_HANDSHAKE, f"the server refused the client certificate: {told}")
    return TargetError(ErrorKind.TLS_HANDSHAKE, f"the TLS handshake failed: {plain(bare)}")


def plain(reason: str) -> str:
    """A reason of the library in words; an alert is what the server says, the rest what this side found."""
    words = reason.removeprefix("ALERT_").lower().replace("_", " ")
    said = f"the server ended it ({words})" if reason.startswith("ALERT_") else words
    return _PLAIN.get(reason, said)


def plain_alert(data: bytes) -> int | None:
    """The number of a fatal alert that ends these bytes: the library has no name for some of them."""
    record = data[-7:]
    return record[6] if record[:2] == b"\x15\x03" and record[3:6] == b"\x00\x02\x02" else None


def handshake_cut_short() -> TargetError:
    return TargetError(ErrorKind.TLS_HANDSHAKE, "the server closed the connection during the TLS handshake")


def _no_protocol(offered: tuple[str, ...]) -> TargetError:
    if offered == ("h2",):
        return TargetError(ErrorKind.PROTOCOL_ERROR, "the server does not offer HTTP/2")
    told = f"the server speaks none of the protocols it was offered (ALPN: {', '.join(offered)})"
    return TargetError(ErrorKind.TLS_HANDSHAKE, told)


def _verification_error(error: ssl.SSLCertVerificationError, linked: int) -> TargetError:
    kind = _VERIFY_KINDS.get(error.verify_code)
    if kind is ErrorKind.TLS_HOSTNAME_MISMATCH:
        return TargetError(kind, error.verify_message)
    if kind:
        return TargetError(kind, _MESSAGES[kind])
    if error.verify_code in _ISSUER_NOT_FOUND and linked <= 1:
        return TargetError(
            ErrorKind.TLS_CHAIN_INCOMPLETE,
            "the issuer of the certificate is missing: the server sent no intermediate leading to a trusted root",
        )
    return TargetError(ErrorKind.TLS_UNTRUSTED, f"the certificate is not trusted: {error.verify_message}")
