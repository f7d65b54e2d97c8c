"""What ``ssl://``, ``tcp://``, ``dns://`` and ``ping://`` on the command line mean; options go behind ``?``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.errors import UsageError

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
Query = dict[str, list[str]]
Shared = Mapping[str, Any]
"""Fields that options of the command line gave: ``tls`` and ``ip_family``, where they were given."""


def fields_of(target: str, shared: Shared) -> dict[str, Any] | None:
    """The fields of the check that a target names; null for a scheme that is not one of these four.

    Raises ``UsageError``.
    """
    scheme, separator, _ = target.partition("://")
    if not separator or scheme not in _SCHEMES:
        return None
    read, known = _SCHEMES[scheme]
    try:
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise UsageError(f"{target}: {error}") from None
    if unknown := sorted(query.keys() - known):
        raise UsageError(f"{target}: {unknown[0]!r} is not an option here: use {', '.join(sorted(known))}")
    if parts.path not in {"", "/"} or parts.fragment:
        raise UsageError(f"{target}: there is no path in {scheme}://: options go behind '?'")
    return {"kind": scheme, **read(target, parts.netloc, query, shared)}


def _ssl(target: str, place: str, query: Query, shared: Shared) -> dict[str, Any]:
    return {**_where(target, place), **shared, **_single(query)}


def _tcp(target: str, place: str, query: Query, shared: Shared) -> dict[str, Any]:
    given = _single(query)
    fields = {**_where(target, place), **{name: shared[name] for name in shared.keys() & {"ip_family"}}}
    if _yes(given.pop("tls", "no"), target):
        fields["tls"] = shared.get("tls", {})
    return {**fields, **given}


def _dns(target: str, place: str, query: Query, _: Shared) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": place, "expected": query.pop("expected", [])}
    given = _single(query)
    if "type" in given:
        fields["record"] = given.pop("type").upper()
    if "resolver" in given:
        server = _where(target, given.pop("resolver"))
        fields |= {"resolver": server["host"], **{name: server[name] for name in server.keys() & {"port"}}}
    return {**fields, **given}


def _ping(target: str, place: str, query: Query, shared: Shared) -> dict[str, Any]:
    where = _where(target, place)
    if "port" in where:
        raise UsageError(f"{target}: an echo has no port: write ping://{where['host']}")
    options = {name: _number(text) for name, text in _single(query).items()}
    return {**where, **{name: shared[name] for name in shared.keys() & {"ip_family"}}, **options}


_SCHEMES: dict[str, tuple[Callable[[str, str, Query, Shared], dict[str, Any]], frozenset[str]]] = {
    "ssl": (_ssl, frozenset({"starttls", "addresses", "server_name"})),
    "tcp": (_tcp, frozenset({"send", "expect", "tls", "server_name"})),
    "dns": (_dns, frozenset({"type", "resolver", "expected", "match"})),
    "ping": (_ping, frozenset({"count", "interval_ms", "degraded_loss_percent", "down_loss_percent"})),
}


def _single(query: Query) -> dict[str, str]:
    return {name: values[-1] for name, values in query.items()}


def _number(text: str) -> int | float | str:
    """What is no number stays as it is, and the check says so."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _where(target: str, place: str) -> dict[str, Any]:
    host, colon, port = place.rpartition(":")
    if not colon or host.count("[") != host.count("]") or (host.count(":") and "[" not in host):
        return {"host": place}
    if not (port.isascii() and port.isdecimal()):
        raise UsageError(f"{target}: the port must be a number, as in example.org:443")
    return {"host": host, "port": int(port)}


def _yes(text: str, target: str) -> bool:
    words = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
    if text.lower() not in words:
        raise UsageError(f"{target}: tls is yes or no")
    return words[text.lower()]
