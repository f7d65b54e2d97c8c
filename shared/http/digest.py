"""Digest authentication (RFC 7616): the answer to a server's challenge."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from shared.domain.errors import ErrorKind
from shared.http.errors import TargetError

_ALGORITHMS = {"SHA-256": "sha256", "MD5": "md5"}
"""Best first: what is chosen when a server offers several."""

MAX_FIELD = 2048
MAX_FIELDS = 8
_ITEM = re.compile(r"""(?:[^,"]|"(?:[^"\\]|\\.)*")+""")
_BEGIN = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s+(.*))?", re.DOTALL)
_PARAMETER = re.compile(
    r"""([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^\s",=][^\s",]*)?))\s*""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server wants hashed. ``algorithm`` is as the server wrote it, empty when it did not."""

    realm: str
    nonce: str
    algorithm: str
    qop: str | None
    opaque: str | None
    stale: bool

    @property
    def hash_name(self) -> str | None:
        return _ALGORITHMS.get(self._base)

    @property
    def session(self) -> bool:
        return self.algorithm.upper().endswith("-SESS")

    @property
    def strength(self) -> int:
        return -list(_ALGORITHMS).index(self._base)

    @property
    def _base(self) -> str:
        return (self.algorithm or "MD5").upper().removesuffix("-SESS")


def find_challenge(values: Iterable[str]) -> Challenge:
    """The best challenge among WWW-Authenticate fields; raises ``TargetError`` (auth_unsupported)."""
    offered: list[str] = []
    usable: list[Challenge] = []
    for scheme, parameters in parse_challenges(values):
        offered.append(scheme)
        if scheme.lower() != "digest" or "nonce" not in parameters:
            continue
        challenge = _challenge(parameters)
        if challenge.hash_name is None:
            offered[-1] = f"Digest with {challenge.algorithm[:40]}"
        elif parameters.get("qop") is not None and challenge.qop is None:
            offered[-1] = f"Digest with quality {parameters['qop'][:40]}"
        elif not f"{challenge.realm}{challenge.nonce}{challenge.opaque}".isascii():
            offered[-1] = "Digest with characters that cannot be sent back"
        else:
            usable.append(challenge)
    if not usable:
        told = ", ".join(offered)[:200] or "no way to log in"
        raise TargetError(
            ErrorKind.AUTH_UNSUPPORTED, f"digest authentication is not possible: the server offers {told}"
        )
    return max(usable, key=lambda each: each.strength)


def _challenge(parameters: dict[str, str]) -> Challenge:
    qualities = [word.strip().lower() for word in parameters.get("qop", "").split(",")]
    return Challenge(
        realm=parameters.get("realm", ""),
        nonce=parameters["nonce"],
        algorithm=parameters.get("algorithm", ""),
        qop="auth" if "auth" in qualities else None,
        opaque=parameters.get("opaque"),
        stale=parameters.get("stale", "").lower() == "true",
    )


def parse_challenges(values: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Schemes with their parameters (RFC 9110 section 11.6.1), several to a field as servers like it."""
    current: tuple[str, dict[str, str]] | None = None
    # Bounded: a field of unclosed quotes takes time in the square of its length.
    bounded = (value[:MAX_FIELD] for value, _ in zip(values, range(MAX_FIELDS), strict=False))
    for item in (found[0].strip() for value in bounded for found in _ITEM.finditer(value)):
        parameter = _PARAMETER.fullmatch(item)
        if parameter is None and (begin := _BEGIN.fullmatch(item)):
            if current:
                yield current
            current = (begin[1], {})
            parameter = _PARAMETER.fullmatch(begin[2] or "")
        if parameter and current:
            quoted = parameter[2]
            value = parameter[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            current[1].setdefault(parameter[1].lower(), value)
    if current:
        yield current


class DigestSession:
    """Answers one challenge any number of times; each answer counts up."""

    def __init__(self, challenge: Challenge, username: str, password: str) -> None:
        self._challenge = challenge
        self._username = username
        self._password = password
        self._count = 0
        self._cnonce = secrets.token_hex(8)

    def authorization(self, method: str, target: str) -> str:
        """The value of the Authorization field for one request."""
        challenge = self._challenge
        self._count += 1
        fields = [
            self._username_field(),
            f'realm="{_escape(challenge.realm)}"',
            f'nonce="{_escape(challenge.nonce)}"',
        ]
        fields += [f'uri="{target}"', f'response="{self._response(method, target)}"']
        if challenge.algorithm:
            fields.append(f"algorithm={challenge.algorithm}")
        if challenge.opaque is not None:
            fields.append(f'opaque="{_escape(challenge.opaque)}"')
        if challenge.qop:
            fields.append(f"qop=auth, nc={self._count:08x}")
        if challenge.qop or challenge.session:
            fields.append(f'cnonce="{self._cnonce}"')
        return f"Digest {', '.join(fields)}"

    def _username_field(self) -> str:
        if self._username.isascii():
            return f'username="{_escape(self._username)}"'
        return f"username*=UTF-8''{quote(self._username, safe='')}"

    def _response(self, method: str, target: str) -> str:
        challenge = self._challenge
        identity = self._hash(f"{self._username}:{challenge.realm}:{self._password}")
        if challenge.session:
            identity = self._hash(f"{identity}:{challenge.nonce}:{self._cnonce}")
        request = self._hash(f"{method}:{target}")
        if not challenge.qop:
            return self._hash(f"{identity}:{challenge.nonce}:{request}")
        return self._hash(f"{identity}:{challenge.nonce}:{self._count:08x}:{self._cnonce}:auth:{request}")

    def _hash(self, text: str) -> str:
        assert self._challenge.hash_name
        return hashlib.new(self._challenge.hash_name, text.encode(), usedforsecurity=False).hexdigest()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
