"""A server that takes mail, and how an operator writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from shared.domain.url import normalise_host

_SECURITY = {"smtps": ("tls", 465), "smtp": ("starttls", 587), "smtp+plain": ("none", 25)}


@dataclass(frozen=True, slots=True)
class MailServer:
    """An SMTP server. ``security`` is ``tls`` from the first byte, ``starttls`` (demanded), or ``none``."""

    host: str
    port: int
    security: str
    username: str | None = None
    password: str | None = None


def parse_smtp_url(url: str) -> MailServer:
    """``smtps://`` is TLS, ``smtp://`` demands STARTTLS, ``smtp+plain://`` is neither; raises ``ValueError``."""
    parts = urlsplit(url)
    if parts.scheme not in _SECURITY or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("write the mail server as smtps://user:password@host:465 or smtp://user:password@host:587")
    security, port = _SECURITY[parts.scheme]
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password or "") if parts.username else None
    if username and security == "none":
        raise ValueError("a password would be sent in the clear: use smtps:// or smtp://")
    return MailServer(normalise_host(parts.hostname or ""), parts.port or port, security, username, password)
