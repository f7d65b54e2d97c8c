"""Which addresses may be dialled. Judged on addresses, never on names or on how an address is spelled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


_PRIVATE = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
    "fec0::/10",
)
# Link-local is here for the metadata services of clouds: they hand out credentials to whoever can ask.
_SPECIAL = _networks("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4")
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_BELOW_COMPATIBLE = 2**16  # ::, ::1 and their neighbours carry no IPv4 address


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Public addresses are always allowed.

    ``allow_private`` adds loopback, private and unique-local ones; ``allowed_networks`` adds exactly what it
    names, be it link-local or a test network.
    """

    allow_private: bool = False
    allowed_networks: tuple[Network, ...] = ()

    def refusal(self, address: str) -> str | None:
        """Why this address must not be dialled, or null. ``address`` is a literal IPv4 or IPv6 address."""
        return _refusal(self, address)


@lru_cache(maxsize=4096)
def _refusal(policy: AddressPolicy, text: str) -> str | None:
    for address in carried_addresses(ip_address(text)):
        if not _allowed(policy, address):
            carried = "" if str(address) == text else f" (it carries {address})"
            return f"{text}{carried} is not a public address"
    return None


def _allowed(policy: AddressPolicy, address: Address) -> bool:
    if _within(address, policy.allowed_networks):
        return True
    if _within(address, _PRIVATE):
        return policy.allow_private
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_IPV6
    return not _within(address, _SPECIAL)


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)  # of the other family: false


def carried_addresses(address: Address) -> tuple[Address, ...]:
    """Every address a packet to this one may end at, translations and tunnels unwrapped.

    RFC 4291 section 2.5.5 (compatible and mapped), RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo).
    """
    if isinstance(address, IPv4Address):
        return (address,)
    if mapped := address.ipv4_mapped:
        return (mapped,)
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) >= _BELOW_COMPATIBLE):
        return (low,)
    if address.sixtofour:
        return (address, address.sixtofour)
    if address.teredo:
        return (address, *address.teredo)
    return (address,)
