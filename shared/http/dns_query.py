"""One question to a name server over our own sockets: UDP first, TCP when the answer does not fit (RFC 7766)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import count
from typing import Literal, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
from dns.rdtypes.txtbase import TXTBase

from shared.domain.dns_records import RecordKind
from shared.domain.errors import ErrorKind
from shared.http.dial import dial
from shared.http.errors import HttpError, TargetError, connect_error
from shared.http.inbox import Inbox

Server = tuple[str, int]

FIRST_WAIT = 1.0
"""Seconds before a question is asked again; each further time twice as long. UDP loses packets on good days."""

LARGE = 4096
"""Bytes of an answer that is read on a thread of its own."""

_PAYLOAD = 1232  # what passes every path unfragmented
_ID = slice(0, 2)
_KNOWS_NO_EDNS = frozenset({"FORMERR", "NOTIMP", "BADVERS"})
"""What servers say that do not know the extension every question carries (RFC 6891 section 7)."""

_REASON_LIMIT = 120


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """``records`` are the values of the wanted kind, as a zone file has them; ``ttl`` their least, in seconds.

    ``alias`` is the name that the one asked for leads to, by CNAMEs; ``reason`` what the server says about a
    failure (RFC 8914), such as what is wrong with a signature.
    """

    server: str
    transport: Literal["udp", "tcp"]
    rcode: str
    records: tuple[str, ...] = ()
    ttl: int | None = None
    alias: str | None = None
    reason: str | None = None


class DnsQuestion:
    """A question and how far its answering came: ``server`` and ``truncated`` are known also after a deadline."""

    def __init__(self, name: str, kind: RecordKind) -> None:
        """``name`` is absolute; raises ``TargetError`` for one that cannot be asked for."""
        try:
            self._query = dns.message.make_query(name, kind, use_edns=0, payload=_PAYLOAD)
        except dns.exception.DNSException as error:
            raise TargetError(ErrorKind.CONFIG_ERROR, f"{name[:80]} cannot be asked for: {error}") from None
        self._wire = self._query.to_wire()
        self._kind = dns.rdatatype.from_text(kind)
        self.server: str | None = None
        self.truncated = False

    async def ask(self, servers: Sequence[Server], monotonic: Callable[[], float]) -> DnsAnswer:
        """Ask in turn until one answers; raises ``TargetError``. The caller sets the deadline, which is silence."""
        server, answer = await self._ask(servers, monotonic)
        if answer.rcode in _KNOWS_NO_EDNS:
            self._query.use_edns(-1)
            self._wire, self.truncated = self._query.to_wire(), False
            _, answer = await self._ask((server,), monotonic)
        return answer

    async def _ask(self, servers: Sequence[Server], monotonic: Callable[[], float]) -> tuple[Server, DnsAnswer]:
        server, data = await self._over_udp(servers)
        answer = await self._understood(data, "udp")
        if answer is None:
            self.truncated = True
            answer = await self._understood(await self._over_tcp(server, monotonic), "tcp")
        assert answer
        return server, answer

    async def _understood(self, data: bytes, transport: Literal["udp", "tcp"]) -> DnsAnswer | None:
        """Large answers are read beside the event loop: 64 KiB of records take a tenth of a second."""
        if len(data) > LARGE:
            return await asyncio.to_thread(self._read, data, transport)
        return self._read(data, transport)

    async def _over_udp(self, servers: Sequence[Server]) -> tuple[Server, bytes]:
        refusals: set[Server] = set()
        with contextlib.ExitStack() as open_sockets:
            listeners: dict[Server, _Listener] = {}
            for number in count():
                server = servers[number % len(servers)]
                if server in refusals:
                    continue
                self.server = written(server)
                if server not in listeners:
                    listeners[server] = await _listen(server, self._wire[_ID])
                    open_sockets.callback(listeners[server].close)
                listeners[server].send(self._wire)
                wait = FIRST_WAIT * 2 ** (number // len(servers))
                found = await _first_answer(listeners, wait, refusals)
                if found:
                    self.server = written(found[0])
                    return found
                if len(refusals) == len(set(servers)):
                    told = f"no name server listens at {self.server}, or the network has no way to it"
                    raise TargetError(ErrorKind.DNS_FAILURE, told)
        raise AssertionError  # unreachable: the loop has no end of its own

    async def _over_tcp(self, server: Server, monotonic: Callable[[], float]) -> bytes:
        try:
            wire = await dial([server[0]], server[1], monotonic)
            try:
                inbox = Inbox()
                wire.attach(inbox)
                wire.send(len(self._wire).to_bytes(2) + self._wire)
                return await _framed(inbox)
            finally:
                wire.close()
        except HttpError as error:
            raise self.truncation(error.error.message) from None

    def truncation(self, reason: str) -> TargetError:
        """Why an answer that did not fit into a datagram stayed unknown."""
        told = f"the answer of {self.server} over UDP was truncated, and TCP gave none: {reason}"
        return TargetError(ErrorKind.DNS_TRUNCATED, told)

    def _parsed(self, data: bytes) -> dns.message.Message:
        try:
            message = dns.message.from_wire(data, ignore_trailing=True)
            if self._query.is_response(message):
                return message
            reason = "it answers another question"
        except (dns.exception.DNSException, ValueError) as error:
            reason = str(error) or type(error).__name__
        raise TargetError(ErrorKind.DNS_FAILURE, f"{self.server} sent an answer that cannot be used: {reason}")

    def _read(self, data: bytes, transport: Literal["udp", "tcp"]) -> DnsAnswer | None:
        """Null for a truncated answer: its part of the records means nothing (RFC 2181 section 9)."""
        message = self._parsed(data)
        if transport == "udp" and message.flags & dns.flags.TC:
            return None
        owner = self._end_of_aliases(message)
        found = message.get_rrset(message.answer, owner, dns.rdataclass.IN, self._kind)
        return DnsAnswer(
            server=self.server or "",
            transport=transport,
            rcode=dns.rcode.to_text(message.rcode()),
            records=tuple(map(_text, found or ())),
            ttl=found.ttl if found else None,
            alias=None if owner == self._name else owner.to_text(omit_final_dot=True),
            reason=_reason(message),
        )

    @property
    def _name(self) -> dns.name.Name:
        return self._query.question[0].name

    def _end_of_aliases(self, message: dns.message.Message) -> dns.name.Name:
        """Where the CNAMEs of the answer lead: records of another name are no answer to the question."""
        owner = self._name
        for _ in message.answer:
            alias = message.get_rrset(message.answer, owner, dns.rdataclass.IN, dns.rdatatype.CNAME)
            if alias is None or self._kind == dns.rdatatype.CNAME:
                return owner
            owner = alias[0].target
        return owner


def _text(record: object) -> str:
    if isinstance(record, TXTBase):  # a long text is cut into pieces of 255 bytes, which mean nothing
        return b"".join(record.strings).decode("utf-8", "replace")
    return str(record)


def _reason(message: dns.message.Message) -> str | None:
    """Extended errors, in the words of their register with what the server adds."""
    told = []
    for option in message.extended_errors():
        # Codes that the library does not know are plain numbers, whatever its types say.
        name = getattr(option.code, "name", f"code {option.code:d}").replace("_", " ").lower()
        told.append(": ".join(part for part in (name, option.text) if part))
    text = "; ".join(filter(None, told))[:_REASON_LIMIT]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text) or None


async def _framed(inbox: Inbox) -> bytes:
    """A message with its length in front of it."""
    data = bytearray()
    while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2]):
        piece = await inbox.more()
        if not piece:
            raise TargetError(ErrorKind.DNS_TRUNCATED, "the connection was closed before a complete answer")
        data += piece
    return bytes(data[2 : 2 + int.from_bytes(data[:2])])


class _Listener(asyncio.DatagramProtocol):
    """A socket connected to one server: the system drops what others send."""

    def __init__(self, query_id: bytes) -> None:
        self._query_id = query_id
        self._transport: asyncio.DatagramTransport | None = None
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def send(self, data: bytes) -> None:
        if self._transport:
            self._transport.sendto(data)

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002 the socket is connected
        if data[_ID] == self._query_id and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:  # noqa: ARG002 whatever it was, nobody listens there
        if not self.answer.done():
            self.answer.set_result(None)


async def _listen(server: Server, query_id: bytes) -> _Listener:
    """A socket towards a server; where the network has no way to it, one that has been refused already."""
    listener = _Listener(query_id)
    try:
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: listener, remote_addr=server)
    except OSError as error:
        connect_error(error, written(server))  # raises what is our own fault
        listener.error_received(error)
    return listener


async def _first_answer(
    listeners: dict[Server, _Listener], wait: float, refusals: set[Server]
) -> tuple[Server, bytes] | None:
    """The first answer of any server that was asked, or null after so many seconds, or once one more refused."""
    open_ones = [listener.answer for server, listener in listeners.items() if server not in refusals]
    if open_ones:
        await asyncio.wait(open_ones, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
    for server, listener in listeners.items():
        if listener.answer.done() and server not in refusals:
            if data := listener.answer.result():
                return server, data
            refusals.add(server)
    return None


def written(server: Server) -> str:
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def system_servers(configuration: str) -> tuple[Server, ...]:
    """The name servers of a resolver configuration (``resolv.conf``); this machine itself where it names none."""
    words = [line.split() for line in configuration.splitlines()]
    found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return tuple((each, 53) for each in found if _is_address(each)) or (("127.0.0.1", 53),)


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False
