"""Web addresses as a checker has to see them: parsed once, strictly, and never guessed at.

Browsers mend what people type; a monitor must not, because two programs that mend differently disagree about
which host was meant. That disagreement is how address filters are fooled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit

import idna

DEFAULT_PORTS = {"http": 80, "https": 443}
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ufeff\\]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_QUERY_SAFE = _PATH_SAFE + "?[]|"
_SECRET_NAME = re.compile(
    r"token|secret|key|passw|passphrase|pwd|auth|sig|session|credential|jwt|^code$|^otp$|^pass$|^pin$|^pw$",
    re.IGNORECASE,
)
_MASK = "***"
MAX_LOCATION = 8192


@dataclass(frozen=True, slots=True)
class Url:
    """An http or https address, ready to be dialled and asked for.

    ``host`` is ASCII, lower case and without brackets; ``target`` is the percent-encoded path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host field: the port is named only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def redacted(self) -> str:
        """The address for results, logs and messages: values of parameters that sound secret are masked."""
        path, mark, query = self.target.partition("?")
        masked = "&".join(_masked(pair) for pair in query.split("&"))
        return f"{self.scheme}://{self.authority}{path}{mark}{masked}"

    def join(self, location: str) -> Url:
        """The address a Location field points at; raises ``ValueError`` when it is none we follow."""
        location = location.strip().replace(" ", "%20")
        if len(location) > MAX_LOCATION:
            raise ValueError(f"the URL is longer than {MAX_LOCATION} characters")
        # ``urljoin`` would take "http:///x" for a path on the same host.
        return parse_foreign_url(location if _split(location).scheme else urljoin(str(self), location))


def is_secret_parameter(name: str) -> bool:
    """Whether a parameter of a query sounds as if its value were secret."""
    return _SECRET_NAME.search(unquote(name)) is not None


def _masked(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={_MASK}" if equals and is_secret_parameter(name) else pair


def parse_foreign_url(text: str) -> Url:
    """Parse an address that a target has sent, and keep nothing of it; raises ``ValueError`` like ``parse_url``."""
    return _parsed(text)


@lru_cache(maxsize=4096)
def parse_url(text: str) -> Url:
    """Parse a complete http or https address.

    Raises ``ValueError`` whose text names the fault and its mend. User and password are refused here: see
    ``split_userinfo``.
    """
    return _parsed(text)


def _parsed(text: str) -> Url:
    parts = _split(text)
    if "@" in parts.netloc:
        raise ValueError("user and password do not belong into a URL: use the field 'auth'")
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"the scheme must be http or https, not {parts.scheme[:20]!r}")
    host = normalise_host(parts.hostname or "")
    target = quote(parts.path, safe=_PATH_SAFE) or "/"
    if parts.query:
        target = f"{target}?{quote(parts.query, safe=_QUERY_SAFE)}"
    return Url(parts.scheme, host, _port(parts), target)


def _split(text: str) -> SplitResult:
    if found := _UNPRINTABLE.search(text):
        raise ValueError(
            f"a URL must not contain blanks, control characters or backslashes (position {found.start() + 1}): "
            "percent-encode them, a blank is %20"
        )
    try:
        return urlsplit(text)
    except ValueError as error:
        raise ValueError(f"this is not a URL: {error}") from error


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port is None:
        return DEFAULT_PORTS[parts.scheme]
    if port == 0:
        raise ValueError("the port must be a number from 1 to 65535")
    return port


def split_userinfo(text: str) -> tuple[str, tuple[str, str] | None]:
    """Take user and password (percent-decoded) out of a URL; without any the text comes back unchanged."""
    parts = _split(text)
    userinfo, at, authority = parts.netloc.rpartition("@")
    if not at:
        return text, None
    user, _, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=authority)), (unquote(user), unquote(password))


def userinfo_in(data: Any) -> tuple[str, tuple[str, str]] | None:
    """Of raw input with a ``url`` that names a user: the URL without it, and user and password; else None.

    What can't be split is left alone: the field's own check words the fault.
    """
    url = data.get("url") if isinstance(data, dict) else None
    if not isinstance(url, str) or "@" not in url:
        return None
    try:
        bare, userinfo = split_userinfo(url)
    except ValueError:
        return None
    return None if userinfo is None else (bare, userinfo)


def normalise_host(host: str) -> str:
    """The ASCII form of a name or address (IDNA 2008); raises ``ValueError`` that says what to write instead."""
    if not host:
        raise ValueError("the host is missing: write for example https://example.org/")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if ":" in host:
        return _ipv6(host)
    name = _ascii(host.lower())
    labels = name.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host[:80]!r} is not a host name: use letters, digits, '-' and '.', at most 63 a label")
    return name


def is_address(host: str) -> bool:
    """Whether a normalised host is an IPv4 or IPv6 address instead of a name."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def refuse_other_family(host: str, family: str) -> None:
    """Raises ``ValueError`` for an address that is none of the IP family (``auto``, ``4`` or ``6``)."""
    if family != "auto" and is_address(host) and (":" in host) is not (family == "6"):
        raise ValueError(f"ip_family: {host} is no IPv{family} address")


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f"{host[:80]!r} cannot be written as an international host name: {error}") from error


def _ipv4(host: str) -> str:
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        raise ValueError(
            f"{host[:80]!r} is not an IPv4 address: write four decimal numbers without leading zeros"
        ) from None


def _ipv6(host: str) -> str:
    try:
        address = IPv6Address(host)
    except AddressValueError:
        raise ValueError(f"{host[:80]!r} is not an IPv6 address") from None
    if address.scope_id:
        raise ValueError("an IPv6 address with a zone ('%') means something else on every machine: leave it out")
    return str(address)
