"""Which addresses are dialled, in which order, and which never."""

from __future__ import annotations

import time
from ipaddress import ip_network

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.result import ResultStatus
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, HERE, check, check_tls
from tests.integration.probes.targets import Names, answer, black_hole, closed_port, serve

NETWORK_OF_TARGET = ip_network("127.0.0.2/32")
BOTH: dict[str, list[tuple[str, ...]]] = {"dual.example.test": [("::1", "127.0.0.1")]}


def named(answers: dict[str, list[tuple[str, ...]]], policy: AddressPolicy = HERE) -> CheckRunner:
    return CheckRunner(policy, resolver=Names(answers))


async def test_http_06_a_refusing_aaaa_does_not_matter() -> None:
    async with serve(answer()) as target:
        verdict = await check(named(BOTH), target.url(host="dual.example.test"))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.remote_address == f"127.0.0.1:{target.port}"
        assert verdict.timings_ms.total < AT_ONCE * 1000


async def test_http_06_a_silent_aaaa_costs_one_head_start() -> None:
    async with serve(answer()) as target:
        with black_hole("::1", target.port):
            verdict = await check(named(BOTH), target.url(host="dual.example.test"))
            assert verdict.status is ResultStatus.UP, verdict.error
            assert 200 < verdict.timings_ms.total < AT_ONCE * 1000


async def test_http_06_a_dead_first_of_two_a_records_does_not_matter() -> None:
    async with serve(answer(), host="127.0.0.2") as target:
        runner = named({"two.example.test": [("127.0.0.1", "127.0.0.2")]})
        verdict = await check(runner, target.url(host="two.example.test"))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.remote_address == f"127.0.0.2:{target.port}"


async def test_http_06_only_ipv6_alive_is_up() -> None:
    async with serve(answer(), host="::1") as target:
        runner = named({"dual.example.test": [("127.0.0.1", "::1")]})
        verdict = await check(runner, target.url(host="dual.example.test"))
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_when_every_address_fails_all_of_them_are_named() -> None:
    verdict = await check(named(BOTH), f"http://dual.example.test:{closed_port()}/")
    assert verdict.error
    assert verdict.error.kind == "connect_refused"
    assert "[::1]" in verdict.error.message
    assert "127.0.0.1" in verdict.error.message


async def test_the_family_can_be_pinned() -> None:
    async with serve(answer()) as target:
        verdict = await check(named(BOTH), target.url(host="dual.example.test"), ip_family="6")
        assert verdict.error
        assert verdict.error.kind == "connect_refused"
        moved = answer("302 Found", b"", f"Location: {target.url()}")
        async with serve(moved, host="::1") as first:
            verdict = await check(CheckRunner(HERE), first.url(host="[::1]"), ip_family="6")
            assert verdict.error
            assert verdict.error.kind == "dns_no_data"
            assert target.requests == []


async def test_a_silent_port_is_a_connect_timeout(runner: CheckRunner) -> None:
    with black_hole() as port:
        started = time.monotonic()
        verdict = await check(runner, f"http://127.0.0.1:{port}/", timeout=1)
        assert verdict.error
        assert verdict.error.kind == "connect_timeout"
        assert "while connecting" in verdict.error.message
        assert time.monotonic() - started < AT_ONCE


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_sec_01_a_private_address_is_never_dialled(scheme: str) -> None:
    async with serve(answer()) as canary:
        verdict = await check(CheckRunner(AddressPolicy()), canary.url(scheme=scheme))
        assert verdict.error
        assert verdict.error.kind == "blocked_target"
        tls = await check_tls(CheckRunner(AddressPolicy()), canary.port)
        assert tls.error
        assert tls.error.kind == "blocked_target"
        assert canary.connections == 0


async def test_sec_01_one_private_address_among_public_ones_blocks_them_all() -> None:
    async with serve(answer()) as canary:
        runner = named({"mixed.example.test": [("203.0.113.10", "127.0.0.1")]}, AddressPolicy())
        verdict = await check(runner, canary.url(host="mixed.example.test"))
        assert verdict.error
        assert verdict.error.kind == "blocked_target"
        assert canary.connections == 0


async def test_sec_02_a_second_answer_of_the_name_server_is_never_asked_for() -> None:
    async with serve(answer()) as canary:
        names = Names({"rebind.example.test": [("203.0.113.10",), ("127.0.0.1",)]})
        runner = CheckRunner(AddressPolicy(), resolver=names)
        first = await check(runner, canary.url(host="rebind.example.test"), timeout=0.5)
        assert first.error
        assert first.error.kind.startswith("connect_")
        assert names.asked == ["rebind.example.test"]
        second = await check(runner, canary.url(host="rebind.example.test"))
        assert second.error
        assert second.error.kind == "blocked_target"
        assert canary.connections == 0


LOOPBACK = (
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://127.1:{port}/",
    "http://0:{port}/",
    "//[::1]:{port}/",
    "http://127。0。0。1:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://localhost:{port}/",
)


@pytest.mark.parametrize("location", LOOPBACK)
async def test_sec_03_every_hop_is_judged_again(location: str) -> None:
    async with serve(answer("200 OK", b"internal")) as canary, serve(answer("200 OK", b"internal"), host="::1"):
        redirect = answer(
            "302 Found", b"", "Location: " + location.format(port=canary.port).encode().decode("latin-1")
        )
        async with serve(redirect, host="127.0.0.2") as target:
            # The first hop is allowed by name, the rest of loopback is not.
            allowed = AddressPolicy(allowed_networks=(NETWORK_OF_TARGET,))
            verdict = await check(CheckRunner(allowed), target.url(host="127.0.0.2"))
            assert verdict.error
            assert verdict.error.kind in {"blocked_target", "redirect_invalid"}, verdict.error
            assert canary.connections == 0
            assert "internal" not in repr(verdict)
