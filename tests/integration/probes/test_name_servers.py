"""Name servers that a check names itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from ipaddress import ip_network

import dns.message
import dns.rdatatype
import dns.rrset
import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, TIMEOUT, check
from tests.integration.probes.name_server import Script, Transport, code, name_server, truncated
from tests.integration.probes.targets import answer, serve

HOST = "shop.example.test"


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


def zone(a: tuple[str, ...] = (), aaaa: tuple[str, ...] = (), *, alias: str | None = None) -> Script:
    """Answers by the kind of record, through an alias if one is named."""

    def script(query: dns.message.Message, _: Transport) -> bytes:
        question = query.question[0]
        found = {dns.rdatatype.A: a, dns.rdatatype.AAAA: aaaa}.get(question.rdtype, ())
        response = dns.message.make_response(query)
        name = question.name
        if alias:
            response.answer.append(dns.rrset.from_text(name, 60, "IN", "CNAME", alias))
            name = dns.name.from_text(alias)
        if found:
            response.answer.append(
                dns.rrset.from_text(name, 60, "IN", dns.rdatatype.to_text(question.rdtype), *found)
            )
        return response.to_wire()

    return script


@contextlib.asynccontextmanager
async def asked(*scripts: Script) -> AsyncIterator[list[str]]:
    """Name servers with these answers, as a check writes them."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(name_server(script)) for script in scripts]
        yield [f"127.0.0.1:{server.port}" for server in servers]


@pytest.mark.parametrize(
    "script",
    [
        zone(("127.0.0.1",)),
        zone(("127.0.0.1",), alias="real.example.test."),
        truncated(zone(("127.0.0.1",))),
        zone(("127.0.0.2", "127.0.0.1"), ("::1",)),
    ],
    ids=["A", "CNAME", "TCP", "several"],
)
async def test_a_name_is_resolved_by_the_servers_of_the_check(runner: CheckRunner, script: Script) -> None:
    async with serve(answer()) as target, asked(script) as servers:
        verdict = await check(runner, target.url(host=HOST), resolver=servers)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.remote_address == f"127.0.0.1:{target.port}"
        assert target.header(0, "Host") == f"{HOST}:{target.port}"


async def test_a_server_that_is_broken_is_passed_over(runner: CheckRunner) -> None:
    async with serve(answer()) as target, asked(code("SERVFAIL"), zone(("127.0.0.1",))) as servers:
        verdict = await check(runner, target.url(host=HOST), resolver=servers)
        assert verdict.status is ResultStatus.UP, verdict.error


@pytest.mark.parametrize(
    ("script", "timeout", "expected"),
    [
        (code("NXDOMAIN"), TIMEOUT, "dns_nxdomain"),
        (code("NOERROR"), TIMEOUT, "dns_no_data"),
        (code("SERVFAIL"), TIMEOUT, "dns_failure"),
        (code("REFUSED"), TIMEOUT, "dns_failure"),
        (lambda _, __: None, 0.5, "dns_timeout"),
    ],
)
async def test_every_answer_of_a_name_server_has_its_name(
    runner: CheckRunner, script: Script, timeout: float, expected: str
) -> None:
    async with asked(script) as servers:
        verdict = await check(runner, f"http://{HOST}/", resolver=servers, timeout=timeout)
        assert kind(verdict) == expected, verdict.error


async def test_a_question_for_ipv6_that_nobody_answers_costs_a_moment(runner: CheckRunner) -> None:
    def only_a(query: dns.message.Message, transport: Transport) -> bytes | None:
        if query.question[0].rdtype == dns.rdatatype.AAAA:
            return None
        return zone(("127.0.0.1",))(query, transport)

    async with serve(answer()) as target, asked(only_a) as servers:
        started = time.monotonic()
        verdict = await check(runner, target.url(host=HOST), resolver=servers)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert time.monotonic() - started < AT_ONCE


async def test_the_family_decides_what_is_asked_for(runner: CheckRunner) -> None:
    async with serve(answer()) as target, name_server(zone(("127.0.0.1",), ("::1",))) as server:
        servers = [f"127.0.0.1:{server.port}"]
        four = await check(runner, target.url(host=HOST), resolver=servers, ip_family="4")
        assert four.status is ResultStatus.UP, four.error
        assert server.asked == ["udp"]
        literal = await check(runner, target.url(), resolver=servers)
        assert literal.status is ResultStatus.UP, literal.error
        assert server.asked == ["udp"]


async def test_sec_01_a_private_name_server_is_not_asked() -> None:
    async with name_server(zone(("192.0.2.1",))) as server:
        spec = HttpCheck.model_validate({"url": f"http://{HOST}/", "resolver": [f"127.0.0.1:{server.port}"]})
        verdict = await CheckRunner(AddressPolicy()).run(spec, timeout_seconds=2)
        assert kind(verdict) == "blocked_target"
        assert server.asked == []


async def test_sec_02_a_name_server_of_the_check_cannot_rebind_a_name() -> None:
    async with serve(answer()) as canary:
        async with name_server(zone(("127.0.0.2",), ("::1",)), host="127.0.0.3") as server:
            policy = AddressPolicy(allowed_networks=(ip_network("127.0.0.3/32"),))
            spec = HttpCheck.model_validate(
                {"url": canary.url(host=HOST), "resolver": [f"127.0.0.3:{server.port}"]}
            )
            verdict = await CheckRunner(policy).run(spec, timeout_seconds=2)
        assert kind(verdict) == "blocked_target"
        assert sorted(server.asked) == ["udp", "udp"]
        assert canary.connections == 0
