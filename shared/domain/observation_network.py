"""What the probes below HTTP saw, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.domain.errors import CheckError
from shared.domain.observation import TlsPeer
from shared.domain.result import Timings

BannerEnd = Literal["match", "closed", "limit", "deadline"]


@dataclass(frozen=True, slots=True)
class TcpObservation:
    """One connection. ``end`` says why no more was read; it is null when nothing was to be read, or on an error."""

    timings: Timings
    remote_address: str | None = None
    peer: TlsPeer | None = None
    received: bytes = b""
    end: BannerEnd | None = None
    error: CheckError | None = None


@dataclass(frozen=True, slots=True)
class DnsObservation:
    """One question. ``records`` are the values of the wanted kind, as a zone file has them; ``ttl`` in seconds.

    ``alias`` is the name that the one asked for leads to, by CNAMEs; ``reason`` what the server says of a failure.
    """

    timings: Timings
    server: str | None = None
    transport: Literal["udp", "tcp"] | None = None
    rcode: str | None = None
    records: tuple[str, ...] = ()
    ttl: int | None = None
    alias: str | None = None
    reason: str | None = None
    error: CheckError | None = None


@dataclass(frozen=True, slots=True)
class PingObservation:
    """Echoes to one address; ``round_trips`` of those that were answered, in milliseconds."""

    timings: Timings
    address: str | None = None
    sent: int = 0
    round_trips: tuple[float, ...] = ()
    error: CheckError | None = None
