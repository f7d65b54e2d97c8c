"""Where a document sends what it holds: so that a stored secret is not sent somewhere else unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Destination = tuple[str, str]

_URLS = frozenset({"url", "token_url", "base_url"})
# Who answers for a name decides where it leads.
_PLACES = frozenset({"host", "port", "resolver"})
_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def destinations(document: Mapping[str, Any]) -> frozenset[Destination]:
    """The origin of each URL (its path may change), and the hosts and resolvers of a stored document.

    Variables of the document that a URL is made of are filled in; others stay as they are written.
    """
    return frozenset(_destinations(document, document.get("variables") or {}))


def _destinations(part: Any, variables: Mapping[str, str]) -> Iterator[Destination]:
    if isinstance(part, list):
        for member in part:
            yield from _destinations(member, variables)
    elif isinstance(part, Mapping):
        for name, value in part.items():
            if name in _URLS and value:
                yield "url", _origin(value, variables) if isinstance(value, str) else repr(value)  # a sealed URL
            elif name in _PLACES and value:
                yield name, repr(value)
            else:
                yield from _destinations(value, variables)


def _origin(url: str, variables: Mapping[str, str]) -> str:
    filled = _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), url)
    scheme, _, rest = filled.partition("://")
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    return f"{scheme}://{authority.rpartition('@')[2]}".lower()
