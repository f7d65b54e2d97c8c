"""One request as bytes. Nothing that could end a line early ever gets past here, wherever it came from."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib.metadata import version

from shared.domain.checks import BasicAuth, BearerAuth
from shared.domain.errors import ErrorKind
from shared.domain.url import Url
from shared.http.decoding import ACCEPT_ENCODING
from shared.http.errors import TargetError

USER_AGENT = f"Tocsin/{version('tocsin')}"
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

    def encode(self) -> bytes:
        """HTTP/1.1 bytes; raises ``TargetError`` (config_error) for a field that cannot be sent."""
        chosen = {name.lower() for name, _ in self.headers}
        lines = [f"{self.method} {self.url.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._own() if name.lower() not in chosen]
        lines += [f"{name}: {value}" for name, value in self._theirs()]
        text = "\r\n".join([*lines, "", ""])
        # One look at the whole instead of one at each line: more ends than lines means that a value held one.
        breaks = len(lines) + 1
        if text.count("\r") != breaks or text.count("\n") != breaks or "\x00" in text or not text.isascii():
            raise TargetError(ErrorKind.CONFIG_ERROR, _unsendable(self.headers))
        return text.encode("ascii") + (self.body or b"")

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


def authorization(auth: BasicAuth | BearerAuth) -> str:
    """The value of the Authorization field."""
    if isinstance(auth, BearerAuth):
        return f"Bearer {auth.token}"
    pair = f"{auth.username}:{auth.password}".encode()
    return f"Basic {base64.b64encode(pair).decode('ascii')}"
