"""Where a document sends what it holds: so that a stored secret is not sent somewhere else unseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Destination = tuple[str, str]

_URLS = frozenset({"url", "token_url", "base_url"})
# Who answers for a name decides where it leads, and so do variables that a URL may be made of.
_PLACES = frozenset({"host", "port", "resolver", "variables"})


def destinations(document: Mapping[str, Any]) -> frozenset[Destination]:
    """The origin of each URL (its path may change), and the hosts, resolvers and variables of a stored document."""
    return frozenset(_destinations(document))


def _destinations(part: Any) -> Iterator[Destination]:
    if isinstance(part, list):
        for member in part:
            yield from _destinations(member)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            if name in _URLS and value:
                yield name, _origin(value) if isinstance(value, str) else repr(value)  # a sealed URL
            elif name in _PLACES and value:
                yield name, repr(value)
            else:
                yield from _destinations(value)


def _origin(url: str) -> str:
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    authority = rest
    for end in "/?#":
        authority = authority.partition(end)[0]
    return f"{scheme}://{authority.rpartition('@')[2]}".lower()
