"""TLS as a checker needs it: shared contexts, a handshake that keeps what it saw, and failures by name."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from shared.domain.errors import ErrorKind
from shared.domain.observation import TlsPeer
from shared.http.errors import TargetError
from shared.http.tls_failures import Progress, handshake_error, plain, plain_alert

OBJECTION_WAIT = 0.5
"""Seconds a server has to object after a TLS 1.3 handshake that is complete for us, but not yet for it."""

_READ_SIZE = 65536
_DER = 2  # the interpreter's own constant for it is private

_CIPHERS = "DEFAULT:!aNULL:!eNULL:!MD5:!3DES:!RC4:!SRP:!PSK"
"""What the library, curl and browsers talk: the interpreter's own list leaves out old ciphers that still work."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a context depends on: few different ones exist in a process. ``ca_file`` replaces the system's roots.

    ``newest_only`` speaks nothing older than TLS 1.3.
    ``client`` is shown to a server that demands a certificate: PEM, the certificates before the key.
    ``lenient`` shakes hands also where protocol or keys are too weak, to see and name them: send nothing then.
    """

    verify: bool = True
    alpn: tuple[str, ...] = ()
    ca_file: Path | None = None
    lenient: bool = False
    client: str | None = None
    newest_only: bool = False


@lru_cache(maxsize=64)
def shared_context(settings: TlsSettings) -> ssl.SSLContext:
    """The one context of these settings: loading the roots takes as long as twenty handshakes."""
    # Built by hand: ``create_default_context`` adds strict RFC 5280 checks from Python 3.13 on, which refuse
    # certificates that every browser takes.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Said outright: whether TLS 1.0 is refused without it depends on how the interpreter was built.
    context.minimum_version = _oldest_version(settings)
    context.set_ciphers(f"{_CIPHERS}:@SECLEVEL={0 if settings.lenient else 2}")
    # No browser looks for the name in the subject (RFC 9525): who has it only there is down for them.
    context.hostname_checks_common_name = False
    if settings.alpn:
        context.set_alpn_protocols(list(settings.alpn))
    if settings.client:
        _load_client(context, settings.client)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca_file:
        context.load_verify_locations(settings.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _oldest_version(settings: TlsSettings) -> ssl.TLSVersion:
    if settings.newest_only:
        return ssl.TLSVersion.TLSv1_3
    return ssl.TLSVersion.MINIMUM_SUPPORTED if settings.lenient else ssl.TLSVersion.TLSv1_2


def _load_client(context: ssl.SSLContext, pem: str) -> None:
    # The interpreter reads certificates from files only; this one is removed before anybody else sees it.
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(pem)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            told = f"the client certificate cannot be used: {plain(error.reason or 'unknown')}"
            raise TargetError(ErrorKind.CONFIG_ERROR, told) from None


class TlsPipe:
    """The client's side of one TLS connection over memory buffers; always a new session, never a resumed one."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_settings", "_validated", "closed_by_peer")

    def __init__(self, settings: TlsSettings, server_name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # An address cannot be sent as a server name, but it can be verified.
        self._object = shared_context(settings).wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name.removesuffix(".")
        )
        self._settings = settings
        self._validated = False
        self.closed_by_peer = False

    def shake(self, data: bytes) -> bool:
        """Go on with the handshake; true once it is complete. Raises ``TargetError``."""
        if data:
            self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise handshake_error(error, self._progress(plain_alert(data))) from None
        self._validated = self._settings.verify
        return True

    def encrypt(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> Iterator[bytes]:
        """Yield what can be read; raises ``TargetError`` when the peer ends the connection by an alert."""
        if data:
            self._incoming.write(data)
        try:
            while piece := self._object.read(_READ_SIZE):
                yield piece
            self.closed_by_peer = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise handshake_error(error, self._progress()) from None

    def pending(self) -> bytes:
        return self._outgoing.read()

    @property
    def protocol(self) -> str | None:
        """What both sides agreed to speak (ALPN), if anything."""
        return self._object.selected_alpn_protocol()

    @property
    def has_input(self) -> bool:
        return self._incoming.pending > 0

    def peer(self) -> TlsPeer:
        """What is known of the peer by now; before its first answer nothing is."""
        cipher = self._object.cipher()
        path = self._path()
        chain = _certificates(self._object, "get_unverified_chain") or path
        return TlsPeer(
            version=self._object.version() if cipher else None,
            cipher=cipher[0] if cipher else None,
            chain=chain,
            path=path if self._validated else (),
        )

    def _progress(self, alert: int | None = None) -> Progress:
        settings = self._settings
        return Progress(
            linked=len(self._path()),
            shown=bool(self.peer().chain),
            offered=settings.alpn,
            client=settings.client is not None,
            alert=alert,
        )

    def _path(self) -> tuple[bytes, ...]:
        return _certificates(self._object, "get_verified_chain")


def _certificates(connection: ssl.SSLObject, method: str) -> tuple[bytes, ...]:
    if public := getattr(connection, method, None):  # from Python 3.13 on: DER
        return tuple(public() or ())
    # Before that the interpreter has them, and hides them one attribute deeper.
    private: Any = getattr(connection, "_sslobj")  # noqa: B009
    return tuple(certificate.public_bytes(_DER) for certificate in getattr(private, method)() or ())
