"""Names and records of the DNS in the one form in which they are compared."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

from shared.domain.url import normalise_host

RecordKind = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "SRV", "CAA", "SOA", "PTR"]

_FIELDS: dict[RecordKind, tuple[int, str]] = {
    "CNAME": (1, "a name, as in www.example.org"),
    "NS": (1, "a name, as in ns1.example.org"),
    "PTR": (1, "a name, as in host.example.org"),
    "MX": (2, "preference and name, as in '10 mail.example.org'"),
    "SRV": (4, "priority, weight, port and name, as in '10 5 5060 sip.example.org'"),
    "SOA": (7, "both names and the five numbers of the record"),
}
_CAA = re.compile(r'(\d+)\s+([a-zA-Z0-9]+)\s+"?([^"]*)"?')


def normalise_record(kind: RecordKind, text: str) -> str:
    """The comparable form of a record's value as a zone file has it; raises ``ValueError`` that names the form.

    Names lose their final dot and their case, addresses get their short form; TXT is compared as it is.
    """
    if kind == "A":
        return str(_address(IPv4Address, text, "an IPv4 address"))
    if kind == "AAAA":
        return str(_address(IPv6Address, text, "an IPv6 address"))
    if kind == "TXT":
        return text
    if kind == "CAA":
        return _caa(text)
    count, form = _FIELDS[kind]
    words = [_without_dot(word.lower()) for word in text.split()]
    if len(words) != count:
        raise ValueError(f"{text[:80]!r} is not the value of a {kind} record: write {form}")
    return " ".join(str(int(word)) if word.isdecimal() and word.isascii() else word for word in words)


def _address(family: type[IPv4Address | IPv6Address], text: str, what: str) -> IPv4Address | IPv6Address:
    try:
        return family(text.strip())
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not {what}") from None


def _caa(text: str) -> str:
    found = _CAA.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:80]!r} is not the value of a CAA record: write '0 issue \"ca.example.org\"'")
    return f'{found[1]} {found[2].lower()} "{found[3]}"'


def _without_dot(name: str) -> str:
    return name.removesuffix(".") or name


def query_name(kind: RecordKind, name: str) -> str:
    """The absolute name to ask for; for PTR an address becomes its reverse name. Raises ``ValueError``."""
    if kind == "PTR":
        try:
            return ip_address(name).reverse_pointer + "."
        except ValueError:
            pass
    if name == ".":
        return name
    return _without_dot(_ascii(name)) + "."


def _ascii(name: str) -> str:
    """Like a host, but a label such as ``*`` or a name that ends in a number is a name here too."""
    plain = name.removesuffix(".")
    if plain and plain.isascii() and plain.isprintable() and not any(sign in plain for sign in "\\\"'/ "):
        labels = plain.split(".")
        if len(plain) <= 253 and all(0 < len(label) <= 63 for label in labels):
            return plain.lower()
        raise ValueError(f"{name[:80]!r} is not a name: labels have 1 to 63 characters, a name at most 253")
    return normalise_host(name)
