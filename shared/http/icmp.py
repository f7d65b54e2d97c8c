"""ICMP echoes without privileges where the kernel allows it, over raw sockets where it allows those."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from shared.domain.errors import ErrorKind
from shared.http.errors import TargetError, connect_error

PERMISSION_ADVICE = (
    "this worker may not send pings: allow its group in the sysctl net.ipv4.ping_group_range "
    '(for all: "0 2147483647"), or grant it CAP_NET_RAW'
)

_HEADER = 8
_TOKEN = 16
_FAMILIES = {
    4: (socket.AF_INET, socket.IPPROTO_ICMP, 8, 0),
    6: (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129),
}
_READ_SIZE = 2048
_READS_AT_ONCE = 100
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EPROTONOSUPPORT})


def echo_request(version: int, identifier: int, sequence: int, token: bytes) -> bytes:
    """An echo request for IP ``version``; the kernel computes the checksum of version 6 itself."""
    kind = _FAMILIES[version][2]
    body = identifier.to_bytes(2) + sequence.to_bytes(2) + token
    checksum = checksum_of(bytes([kind, 0, 0, 0]) + body) if version == 4 else 0
    return bytes([kind, 0]) + checksum.to_bytes(2) + body


def checksum_of(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2]) for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def reply_sequence(version: int, packet: bytes, token: bytes) -> int | None:
    """The sequence number of the echo reply that carries our token; null for anything else that came along."""
    if version == 4 and packet[:1] and packet[0] >> 4 == 4:  # raw sockets of version 4 see the IP header
        packet = packet[(packet[0] & 0x0F) * 4 :]
    if len(packet) < _HEADER + _TOKEN or packet[0] != _FAMILIES[version][3] or packet[1] != 0:
        return None
    # The identifier is the kernel's on datagram sockets, so the token is what tells our replies from others'.
    return int.from_bytes(packet[6:8]) if packet[_HEADER : _HEADER + _TOKEN] == token else None


class EchoSocket:
    """Echo requests to one address, and the time each reply took.

    Connected, so that the kernel drops what others send and reports what routers say about us.
    """

    def __init__(self, address: str, monotonic: Callable[[], float]) -> None:
        """Raises ``TargetError``: ``config_error`` where the kernel allows neither kind of socket."""
        self._version = 6 if ":" in address else 4
        self._monotonic = monotonic
        self._token = os.urandom(_TOKEN)
        self._identifier = int.from_bytes(os.urandom(2))
        self._sent_at: dict[int, float] = {}
        self._news = asyncio.Event()
        self.round_trips: dict[int, float] = {}
        self.failure: TargetError | None = None
        self._address = address
        self._socket = _open(self._version)
        try:
            self._socket.setblocking(False)
            self._socket.connect((address, 0))
            asyncio.get_running_loop().add_reader(self._socket, self._read)
        except OSError as error:
            self._socket.close()
            raise connect_error(error, address) from None

    @property
    def sent(self) -> int:
        return len(self._sent_at)

    def send(self) -> None:
        """Send the next request; what the network says about it becomes ``failure``."""
        sequence = self.sent + 1
        self._sent_at[sequence] = self._monotonic()
        try:
            self._socket.send(echo_request(self._version, self._identifier, sequence, self._token))
        except BlockingIOError:
            pass  # a full queue loses packets like any other
        except OSError as error:
            self._fail(error)

    async def all_answered(self) -> None:
        """Wait until every request has its reply, or the network has said that there will be none."""
        while len(self.round_trips) < self.sent and self.failure is None:
            await self._news.wait()
            self._news.clear()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            try:
                packet = self._socket.recv(_READ_SIZE)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        sequence = reply_sequence(self._version, packet, self._token)
        if sequence in self._sent_at and sequence not in self.round_trips:
            self.round_trips[sequence] = round((self._monotonic() - self._sent_at[sequence]) * 1000, 3)
            self._news.set()

    def _fail(self, error: OSError) -> None:
        told = f"{self._address} cannot be reached: {error.strerror or error}"
        self.failure = TargetError(ErrorKind.CONNECT_UNREACHABLE, told)
        self._news.set()


def _open(version: int) -> socket.socket:
    family, protocol, _, _ = _FAMILIES[version]
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            return socket.socket(family, kind, protocol)
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                told = f"this machine has no IPv{version}"
                raise TargetError(ErrorKind.CONNECT_UNREACHABLE, told) from None
            if error.errno not in _FORBIDDEN:
                raise
    raise TargetError(ErrorKind.CONFIG_ERROR, PERMISSION_ADVICE)
