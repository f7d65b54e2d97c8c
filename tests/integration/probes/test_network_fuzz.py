"""Servers that say anything: every check ends in time, and never as a fault of the engine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import dns.message
import pytest
from pydantic import TypeAdapter

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import AnyCheck, CheckSpec
from shared.domain.checks_network import STARTTLS_PORTS
from shared.domain.result import ResultStatus
from tests.dice import new_dice
from tests.integration.probes.conftest import AT_ONCE, HERE
from tests.integration.probes.conversations import speaking
from tests.integration.probes.name_server import Transport, name_server

TIMEOUT = 0.3
ROUNDS = 15
PIECES = (
    b"220 ready\r\n250 STARTTLS\r\n220 go\r\n",
    b"* OK\r\nt1 OK\r\n",
    b"+OK\r\n+OK\r\n",
    b"S",
    b"<stream:features>urn:ietf:params:xml:ns:xmpp-tls</stream:features><proceed/>",
    bytes.fromhex("300c02010178070a010004000400"),
    bytes.fromhex("160303003a0200003603"),  # the beginning of a ServerHello
    bytes.fromhex("15030300020228"),  # an alert
)
SPECS: TypeAdapter[AnyCheck] = TypeAdapter(CheckSpec)


def specs() -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [
        {"kind": "ssl"},
        {"kind": "ssl", "addresses": "all"},
        {"kind": "tcp", "expect": "never"},
        {"kind": "tcp", "tls": {}},
    ]
    return [*plain, *({"kind": "ssl", "starttls": protocol} for protocol in sorted(STARTTLS_PORTS))]


@pytest.mark.parametrize("fields", specs(), ids=lambda fields: "-".join(map(str, fields.values())))
async def test_no_server_breaks_a_check_or_keeps_it(fields: dict[str, Any]) -> None:
    dice = new_dice()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(dice.randrange(4)):
            writer.write(dice.choice(PIECES) if dice.random() < 0.6 else dice.randbytes(dice.randrange(1, 90)))
            await writer.drain()
        if dice.random() < 0.4:
            await reader.read()

    async with speaking(babble) as port:
        spec = SPECS.validate_python({"host": "127.0.0.1", "port": port, **fields})
        started = time.monotonic()
        runner = CheckRunner(HERE)
        verdicts = await asyncio.gather(*(runner.run(spec, timeout_seconds=TIMEOUT) for _ in range(ROUNDS)))
        assert time.monotonic() - started < TIMEOUT + AT_ONCE
    assert {verdict.status for verdict in verdicts} <= {ResultStatus.UP, ResultStatus.DOWN}
    assert all(verdict.error is None or len(verdict.error.message) <= 500 for verdict in verdicts)


async def test_no_name_server_breaks_a_check_or_keeps_it() -> None:
    dice = new_dice()

    def babble(query: dns.message.Message, transport: Transport) -> bytes:
        answer = bytearray(dns.message.make_response(query).to_wire() + dice.randbytes(dice.randrange(60)))
        for _ in range(dice.randrange(6)):
            answer[dice.randrange(2, len(answer))] = dice.randrange(256)
        return bytes(answer[: dice.randrange(2, len(answer) + 1)])

    async with name_server(babble) as server:
        spec = SPECS.validate_python(
            {"kind": "dns", "name": "a.example", "resolver": "127.0.0.1", "port": server.port}
        )
        runner = CheckRunner(HERE)
        verdicts = await asyncio.gather(*(runner.run(spec, timeout_seconds=TIMEOUT) for _ in range(60)))
    assert {verdict.status for verdict in verdicts} <= {ResultStatus.UP, ResultStatus.DOWN}
