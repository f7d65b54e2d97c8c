"""Plain connections and banners against scripts of raw bytes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import TcpCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, HERE, TIMEOUT, Authority
from tests.integration.probes.conversations import speaking
from tests.integration.probes.targets import Names, answer, black_hole, closed_port, serve


async def connect(
    port: int, *, runner: CheckRunner | None = None, timeout: float = TIMEOUT, **fields: Any
) -> CheckVerdict:
    """Run a tcp check once."""
    spec = TcpCheck.model_validate({"host": "127.0.0.1", "port": port, **fields})
    return await (runner or CheckRunner(HERE)).run(spec, timeout_seconds=timeout)


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


async def wait_for_the_end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_an_open_port_is_up() -> None:
    async with speaking(wait_for_the_end) as port:
        verdict = await connect(port)
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.tcp
    assert verdict.tcp.remote_address == f"127.0.0.1:{port}"
    assert verdict.timings_ms.connect > 0


async def test_a_closed_port_and_a_silent_one_are_told_apart() -> None:
    assert kind(await connect(closed_port())) == "connect_refused"
    with black_hole() as port:
        assert kind(await connect(port, timeout=0.3)) == "connect_timeout"


async def test_what_is_sent_and_expected_are_bytes() -> None:
    async def pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(7) == b"PING\r\n\xff":
            writer.write(b"+PONG\x00\r\n")
            await writer.drain()
            await reader.read()

    async with speaking(pong) as port:
        verdict = await connect(port, send=r"PING\r\n\xff", expect=r"^\+PONG\x00")
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.timings_ms.first_byte > 0


async def test_a_banner_may_come_in_pieces() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b"220 ready":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01)
        await reader.read()

    async with speaking(slowly) as port:
        verdict = await connect(port, expect="^220 ready$")
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.tcp
    assert verdict.tcp.banner == "220 ready"


async def test_a_silent_server_is_a_banner_timeout() -> None:
    async with speaking(wait_for_the_end) as port:
        started = time.monotonic()
        verdict = await connect(port, expect="220", timeout=1)
    assert kind(verdict) == "banner_timeout"
    assert time.monotonic() - started < AT_ONCE


async def test_another_banner_is_a_mismatch_that_shows_it() -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        await reader.read()

    async with speaking(ssh) as port:
        verdict = await connect(port, expect="^220", timeout=1)
    assert kind(verdict) == "banner_mismatch"
    assert verdict.tcp
    assert verdict.tcp.banner == "SSH-2.0-x\r\n"


async def test_a_server_that_hangs_up_is_a_mismatch_at_once() -> None:
    async def bye(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")

    async with speaking(bye) as port:
        started = time.monotonic()
        assert kind(await connect(port, expect="hello")) == "banner_mismatch"
        assert time.monotonic() - started < AT_ONCE


async def test_an_endless_banner_is_cut_off() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 50_000)
            await writer.drain()

    async with speaking(endless) as port:
        started = time.monotonic()
        verdict = await connect(port, expect="y")
        assert time.monotonic() - started < AT_ONCE
    assert kind(verdict) == "banner_mismatch"
    assert verdict.tcp
    assert verdict.tcp.banner_bytes == 65536


async def test_tls_can_be_asked_for(runner: CheckRunner, authority: Authority) -> None:
    async with serve(answer("200 OK", b"ready"), tls=authority.context()) as target:
        verdict = await connect(target.port, runner=runner, tls={}, send=r"GET / HTTP/1.0\r\n\r\n", expect="ready")
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.tls
        assert verdict.tls.certificate
        assert (await connect(target.port, runner=runner, tls={})).status is ResultStatus.UP


async def test_tls_is_judged_like_everywhere(runner: CheckRunner, authority: Authority) -> None:
    async with serve(answer(), tls=authority.context(authority.leaf(starts=-9, ends=-1.5))) as target:
        verdict = await connect(target.port, runner=runner, tls={})
        assert kind(verdict) == "tls_expired"
        assert verdict.error
        assert verdict.error.message == "certificate of 127.0.0.1 expired 1 day ago"
    async with serve(answer(), tls=authority.context(authority.leaf(ends=5.5))) as target:
        assert (await connect(target.port, runner=runner, tls={})).status is ResultStatus.DEGRADED


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "0.0.0.0"]
)
async def test_sec_01_a_private_address_is_never_dialled(host: str) -> None:
    async with serve(answer()) as canary:
        verdict = await connect(canary.port, host=host, runner=CheckRunner(AddressPolicy()))
        assert kind(verdict) == "blocked_target"
        assert canary.connections == 0


async def test_sec_01_one_private_address_behind_a_name_blocks_it() -> None:
    names = Names({"mixed.example.test": [("203.0.113.10", "127.0.0.1")]})
    async with serve(answer()) as canary:
        runner = CheckRunner(AddressPolicy(), resolver=names)
        verdict = await connect(canary.port, host="mixed.example.test", runner=runner)
        assert kind(verdict) == "blocked_target"
        assert canary.connections == 0
