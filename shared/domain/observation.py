"""What a probe saw, before anybody judges it. A failure on the way is part of what was seen."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import Redirect, Timings

# Codecs that are no character sets of the web; some of them take quadratic time.
_NOT_CHARSETS = frozenset({"punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """What a server showed in the handshake, DER, leaf first; kept also when its verification failed.

    ``chain`` is what it sent, ``path`` what was validated (empty without verification or when it failed).
    """

    version: str | None = None
    cipher: str | None = None
    chain: tuple[bytes, ...] = ()
    path: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TlsObservation:
    """One handshake. ``error`` says why it, or anything before it, failed.

    ``each`` holds one observation per address instead, where all addresses were to be looked at.
    """

    timings: Timings
    remote_address: str | None = None
    peer: TlsPeer | None = None
    error: CheckError | None = None
    each: tuple[TlsObservation, ...] = ()


@dataclass(frozen=True)
class HttpObservation:
    """The last answer of a chain of requests, or how far it came.

    ``body`` is decoded from its content codings; it stays empty when no assertion looks at it. ``body_bytes``
    counts what was received, or with ``body`` what came out of the decoder. ``excerpt`` is the beginning of a body
    that was not kept, ``addresses`` those dialled last and how they failed. ``secrets`` are those that only the
    attempt knows, such as a fetched token.
    """

    timings: Timings
    status_code: int | None = None
    version: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    body_bytes: int = 0
    redirects: tuple[Redirect, ...] = ()
    final_url: str | None = None
    remote_address: str | None = None
    tls: TlsPeer | None = None
    error: CheckError | None = None
    excerpt: bytes = b""
    addresses: tuple[tuple[str, ErrorKind | None], ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def header(self, name: str) -> str | None:
        """The value of a field, several lines of it joined by commas; null when there is none."""
        wanted = name.lower()
        found = [value for field, value in self.headers if field == wanted]
        return ", ".join(found) if found else None

    @cached_property
    def text(self) -> str:
        """The body as text: the charset it names, else UTF-8; what does not decode is replaced."""
        return decode_text(self.body, self.header("content-type"))

    @property
    def json(self) -> Any:
        """The body as JSON; raises ``ValueError`` or ``RecursionError`` when it is none."""
        document, fault = self._json
        if fault is not None:
            raise fault
        return document

    @cached_property
    def _json(self) -> tuple[Any, Exception | None]:
        """Read once, also when it is none: there may be thirty assertions about it."""
        try:
            return json.loads(self.text, parse_constant=_refuse_constant), None
        except (ValueError, RecursionError) as fault:
            return None, fault.with_traceback(None)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def decode_text(body: bytes, content_type: str | None) -> str:
    """Decode without ever failing; a byte order mark is dropped (RFC 8259 section 8.1 lets a reader do that)."""
    charset = _charset(content_type or "")
    try:
        text = body.decode(charset, "replace")
    except (LookupError, UnicodeError):
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


@lru_cache(maxsize=512)
def _charset(content_type: str) -> str:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return _known_charset(value.strip().strip("\"'"))
    return "utf-8"


def _known_charset(label: str) -> str:
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if name.replace("-", "_") in _NOT_CHARSETS else name
