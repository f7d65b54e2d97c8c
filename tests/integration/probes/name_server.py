"""A name server on loopback that answers with whatever a test scripts, over UDP and TCP on one port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from tests.integration.probes.conversations import speaking

Transport = Literal["udp", "tcp"]
Script = Callable[[dns.message.Message, Transport], bytes | None]


@dataclass
class NameServer:
    """``asked`` lists the transports of the questions in their order."""

    port: int
    asked: list[Transport] = field(default_factory=list)


def records(kind: str, *values: str, ttl: int = 300) -> Script:
    """Answer every question with these records."""

    def script(query: dns.message.Message, _: Transport) -> bytes:
        response = dns.message.make_response(query)
        response.answer.append(dns.rrset.from_text(query.question[0].name, ttl, "IN", kind, *values))
        return response.to_wire(max_size=65535)

    return script


def code(name: str) -> Script:
    """Answer every question with this code and nothing else."""

    def script(query: dns.message.Message, _: Transport) -> bytes:
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.from_text(name))
        return response.to_wire(max_size=65535)

    return script


def truncated(whole: Script) -> Script:
    """Over UDP a part with the flag TC, over TCP the whole answer."""

    def script(query: dns.message.Message, transport: Transport) -> bytes | None:
        if transport == "tcp":
            return whole(query, transport)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.TC
        response.answer.append(dns.rrset.from_text(query.question[0].name, 300, "IN", "A", "192.0.2.1"))
        return response.to_wire(max_size=65535)

    return script


@contextlib.asynccontextmanager
async def name_server(script: Script, *, tcp: bool = True, host: str = "127.0.0.1") -> AsyncIterator[NameServer]:
    """Serve; without ``tcp`` that port refuses connections."""
    running = NameServer(0)

    class Datagrams(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            running.asked.append("udp")
            if answer := script(dns.message.from_wire(data), "udp"):
                self.transport.sendto(answer, addr)  # type: ignore[attr-defined]  # uvloop's base has no such method

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        running.asked.append("tcp")
        if answer := script(dns.message.from_wire(query), "tcp"):
            writer.write(len(answer).to_bytes(2) + answer)
        await reader.read()

    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0)))
        running.port = listener.getsockname()[1]
        if tcp:
            await stack.enter_async_context(speaking(converse, listener))
        else:
            listener.close()
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Datagrams, local_addr=(host, running.port)
        )
        stack.callback(transport.close)
        yield running
