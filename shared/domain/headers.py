"""Header fields as a user may type them: the grammar of RFC 9110, and no character more."""

from __future__ import annotations

import re

from shared.domain.url import is_secret_parameter

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(r"[^\t\x20-\x7e]")
_SENSITIVE = re.compile(r"authorization|cookie|token|secret|key|password|auth", re.IGNORECASE)
# We frame the message and close the connection; a second opinion on that is how requests are smuggled.
_OURS = frozenset(
    {
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "proxy-connection",
        "expect",
    }
)
MAX_HEADER_VALUE = 8192


def check_header_name(name: str) -> None:
    """Raises ``ValueError`` unless the name is a token (RFC 9110 section 5.6.2)."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is not a header name: use letters, digits and '-'")


def check_header_value(name: str, value: str) -> None:
    """Raises ``ValueError`` unless the value is one we send as it stands (RFC 9110 section 5.5)."""
    if len(value) > MAX_HEADER_VALUE:
        raise ValueError(f"the value of header {name!r} is longer than {MAX_HEADER_VALUE} characters")
    if value != value.strip():
        raise ValueError(f"the value of header {name!r} starts or ends with a blank: remove it")
    if found := _BAD_VALUE.search(value):
        raise ValueError(
            f"the value of header {name!r} has the character U+{ord(found[0]):04X} at position "
            f"{found.start() + 1}: only printable ASCII can be sent"
        )


def check_request_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers as they are; raises ``ValueError`` naming the first that cannot be sent."""
    seen: set[str] = set()
    for name, value in headers.items():
        check_header_name(name)
        lower = name.lower()
        if lower in _OURS:
            raise ValueError(f"header {name!r} is set by the checker itself: remove it")
        if lower in seen:
            raise ValueError(f"header {name!r} is named twice")
        seen.add(lower)
        check_header_value(name, value)
    return headers


def is_sensitive_header(name: str) -> bool:
    """Whether the value of this header is kept sealed and shown masked."""
    return _SENSITIVE.search(name) is not None


def sounds_secret(name: str) -> bool:
    """Whether a field of a form or a document is kept sealed and shown masked: whatever a header or a URL hides."""
    return is_sensitive_header(name) or is_secret_parameter(name)
