"""Echoes on loopback, over whichever kind of socket this kernel allows."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import PingCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http import icmp
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, HERE, TIMEOUT
from tests.integration.probes.targets import Names


def allowed() -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP).close()
        except OSError:
            continue
        return True
    return False


HERE_AND_BROADCAST = (ip_network("255.255.255.255/32"),)
needs_icmp = pytest.mark.skipif(not allowed(), reason="this kernel lets these tests send no ICMP")


async def echo(host: str = "127.0.0.1", *, runner: CheckRunner | None = None, **fields: Any) -> CheckVerdict:
    spec = PingCheck.model_validate({"host": host, "interval_ms": 100, **fields})
    return await (runner or CheckRunner(HERE)).run(spec, timeout_seconds=TIMEOUT)


@needs_icmp
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_echoes_come_back_with_their_times(host: str) -> None:
    verdict = await echo(host)
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.ping
    assert (verdict.ping.address, verdict.ping.sent, verdict.ping.received) == (host, 3, 3)
    assert verdict.ping.rtt_min is not None
    assert verdict.ping.rtt_average is not None
    assert verdict.ping.rtt_max is not None
    assert 0 < verdict.ping.rtt_min <= verdict.ping.rtt_average <= verdict.ping.rtt_max < AT_ONCE * 1000
    assert verdict.timings_ms.first_byte == verdict.ping.rtt_average


@needs_icmp
async def test_two_pings_at_once_keep_their_replies_apart() -> None:
    runner = CheckRunner(HERE)
    first, second = await echo(runner=runner, count=5), await echo(runner=runner, count=2)
    assert first.ping
    assert second.ping
    assert (first.ping.received, second.ping.received) == (5, 2)


@needs_icmp
async def test_lost_echoes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    build, calls = icmp.echo_request, []

    def lose_the_second(version: int, identifier: int, sequence: int, token: bytes) -> bytes:
        calls.append(sequence)
        return build(version, identifier, sequence, b"x" * len(token) if sequence == 2 else token)

    monkeypatch.setattr(icmp, "echo_request", lose_the_second)
    started = time.monotonic()
    verdict = await CheckRunner(HERE).run(
        PingCheck(host="127.0.0.1", interval_ms=100, degraded_loss_percent=30), timeout_seconds=2
    )
    assert verdict.status is ResultStatus.DEGRADED
    assert verdict.error
    assert verdict.error.message == "1 of 3 echo requests were lost (degraded from 30 %)"
    assert time.monotonic() - started < AT_ONCE


@needs_icmp
async def test_a_dead_family_does_not_matter() -> None:
    names = Names({"dual.example.test": [("::1", "127.0.0.1")]})
    verdict = await echo("dual.example.test", runner=CheckRunner(HERE, resolver=names))
    assert verdict.ping
    assert verdict.ping.address == "::1"
    # Nobody may connect to the broadcast address: nothing is sent, and the other family decides.
    names = Names({"dual.example.test": [("255.255.255.255", "::1")]})
    everywhere = AddressPolicy(allow_private=True, allowed_networks=HERE_AND_BROADCAST)
    verdict = await echo("dual.example.test", runner=CheckRunner(everywhere, resolver=names))
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.ping
    assert verdict.ping.address == "::1"


@needs_icmp
@pytest.mark.parametrize("code", [errno.EHOSTUNREACH, errno.EPROTO, errno.ECONNREFUSED])
async def test_what_the_network_says_is_data_at_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def report(*_: Any) -> None:
        raise OSError(code, "scripted")

    monkeypatch.setattr(icmp, "echo_request", report)
    started = time.monotonic()
    verdict = await echo(count=1)
    assert verdict.error
    assert verdict.error.kind == "connect_unreachable"
    assert verdict.error.message == "127.0.0.1 cannot be reached: scripted"
    assert time.monotonic() - started < AT_ONCE


async def test_without_permission_the_check_says_what_to_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> socket.socket:
        raise OSError(errno.EACCES, "Permission denied")

    kernel = SimpleNamespace(socket=refuse, SOCK_DGRAM=socket.SOCK_DGRAM, SOCK_RAW=socket.SOCK_RAW)
    monkeypatch.setattr(icmp, "socket", kernel)
    verdict = await CheckRunner(HERE).run(PingCheck(host="127.0.0.1"), timeout_seconds=2, retries=2)
    assert verdict.error
    assert verdict.error.kind == "config_error"
    assert "net.ipv4.ping_group_range" in verdict.error.message
    assert "CAP_NET_RAW" in verdict.error.message
    assert verdict.attempts == 1


PRIVATE = ("127.0.0.1", "::1", "::ffff:127.0.0.1", "fe90::1", "169.254.169.254", "224.0.0.1")


@pytest.mark.parametrize("host", PRIVATE)
async def test_sec_01_a_private_address_gets_no_echo(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Canary(icmp.EchoSocket):
        def __init__(self, address: str, monotonic: Callable[[], float]) -> None:
            opened.append(address)
            super().__init__(address, monotonic)

    monkeypatch.setattr("monitoring_worker.probes.ping.EchoSocket", Canary)
    verdict = await echo(host, runner=CheckRunner(AddressPolicy()))
    assert verdict.error
    assert verdict.error.kind == "blocked_target"
    assert opened == []
