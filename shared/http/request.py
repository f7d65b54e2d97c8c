"""One request as bytes. Nothing that could end a line early ever gets past here, wherever it came from."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib.metadata import version

from shared.domain.errors import ErrorKind
from shared.domain.url import Url
from shared.http.decoding import ACCEPT_ENCODING
from shared.http.errors import TargetError

USER_AGENT = f"Tocsin/{version('tocsin')}"
_NOT_IN_HTTP2 = frozenset({"host", "connection"})
_CARRY_CONTENT = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask for. ``headers`` are the user's, and replace our own of the same name; ``cookies`` is the Cookie
    field of what earlier hops have set, and goes after a Cookie field of the user.
    """

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    cookies: str | None = None

    def encode(self, target: str | None = None, more: tuple[tuple[str, str], ...] = ()) -> bytes:
        """HTTP/1.1 bytes; raises ``TargetError`` (config_error) for a field that cannot be sent.

        ``target`` replaces the path and ``more`` adds fields on the way through a proxy.
        """
        chosen = {name.lower() for name, _ in self.headers}
        lines = [f"{self.method} {target or self.url.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._own() if name.lower() not in chosen]
        lines += [f"{name}: {value}" for name, value in (*self._theirs(), *more)]
        text = "\r\n".join([*lines, "", ""])
        # One look at the whole instead of one at each line: more ends than lines means that a value held one.
        breaks = len(lines) + 1
        if text.count("\r") != breaks or text.count("\n") != breaks or "\x00" in text or not text.isascii():
            raise TargetError(ErrorKind.CONFIG_ERROR, _unsendable(self.headers))
        return text.encode("ascii") + (self.body or b"")

    def http2_fields(self) -> list[tuple[str, str]]:
        """The fields of HTTP/2, in which method, address and host are fields too; raises ``TargetError``."""
        theirs = [(name.lower(), value) for name, value in self._theirs()]
        chosen = {name for name, _ in theirs}
        own = [(name.lower(), value) for name, value in self._own() if name.lower() not in chosen]
        authority = dict(theirs).get("host", self.url.authority)
        fields = [
            (":method", self.method),
            (":authority", authority),
            (":scheme", self.url.scheme),
            (":path", self.url.target),
            *((name, value) for name, value in (*own, *theirs) if name not in _NOT_IN_HTTP2),
        ]
        if not all(value.isascii() and value.replace("\t", "").isprintable() for _, value in fields):
            raise TargetError(ErrorKind.CONFIG_ERROR, _unsendable(self.headers))
        return fields

    def _theirs(self) -> list[tuple[str, str]]:
        if not self.cookies:
            return list(self.headers)
        typed = [value for name, value in self.headers if name.lower() == "cookie"]
        others = [pair for pair in self.headers if pair[0].lower() != "cookie"]
        return [*others, ("Cookie", "; ".join([*typed, self.cookies]))]

    def _own(self) -> list[tuple[str, str]]:
        own = [
            ("Host", self.url.authority),
            ("User-Agent", USER_AGENT),
            ("Accept", "*/*"),
            ("Accept-Encoding", ACCEPT_ENCODING),
            ("Connection", "close"),
        ]
        if self.body is not None or self.method in _CARRY_CONTENT:
            own.append(("Content-Length", str(len(self.body or b""))))
        return own


def _unsendable(headers: tuple[tuple[str, str], ...]) -> str:
    bad = [name for name, value in headers if not (name + value).isascii() or not (name + value).isprintable()]
    what = f"header {bad[0][:60]!r}" if bad else "the request"
    return f"{what} cannot be sent: only printable ASCII can"


def basic(username: str, password: str) -> str:
    """The value of an Authorization or Proxy-Authorization field (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode('ascii')}"
