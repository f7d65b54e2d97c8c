"""Questions to a scripted name server over real sockets."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import dns.edns
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring_worker.probes.dns import DnsProbe
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import DnsCheck
from shared.domain.clock import SystemClock
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.dns_query import DnsQuestion, system_servers
from shared.http.door import Door
from shared.http.errors import TargetError
from shared.http.guard import AddressPolicy
from shared.http.resolver import SystemResolver
from tests.integration.probes.conftest import AT_ONCE, HERE, TIMEOUT
from tests.integration.probes.name_server import Script, Transport, code, name_server, records, truncated
from tests.integration.probes.targets import closed_port

MANY = [f"192.0.2.{number}" for number in range(1, 41)]


async def ask(port: int, *, timeout: float = TIMEOUT, **fields: Any) -> CheckVerdict:
    spec = DnsCheck.model_validate({"name": "shop.example", "resolver": "127.0.0.1", "port": port, **fields})
    return await CheckRunner(HERE).run(spec, timeout_seconds=timeout)


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


@pytest.mark.parametrize(
    ("record", "values", "shown"),
    [
        ("A", ["192.0.2.1", "192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        ("AAAA", ["2001:db8::1"], ["2001:db8::1"]),
        ("CNAME", ["www.example."], ["www.example."]),
        ("MX", ["10 mail.example.", "20 backup.example."], ["10 mail.example.", "20 backup.example."]),
        ("NS", ["ns1.example."], ["ns1.example."]),
        ("TXT", ['"v=spf1 " "-all"'], ["v=spf1 -all"]),
        ("SRV", ["10 5 5060 sip.example."], ["10 5 5060 sip.example."]),
        ("CAA", ['0 issue "ca.example"'], ['0 issue "ca.example"']),
        ("SOA", ["ns.example. host.example. 1 2 3 4 5"], ["ns.example. host.example. 1 2 3 4 5"]),
        ("PTR", ["host.example."], ["host.example."]),
    ],
)
async def test_every_kind_of_record_is_read_and_compared(record: str, values: list[str], shown: list[str]) -> None:
    async with name_server(records(record, *values)) as server:
        verdict = await ask(server.port, record=record, match="equals", expected=shown)
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.dns
    assert sorted(verdict.dns.records) == sorted(shown)
    assert (verdict.dns.rcode, verdict.dns.transport, verdict.dns.ttl_seconds) == ("NOERROR", "udp", 300)
    assert verdict.dns.server == f"127.0.0.1:{server.port}"
    assert 0 < verdict.timings_ms.dns <= verdict.timings_ms.total


async def test_a_reverse_name_is_made_of_an_address() -> None:
    names: list[str] = []

    def script(query: dns.message.Message, transport: Transport) -> bytes | None:
        names.append(str(query.question[0].name))
        return records("PTR", "host.example.")(query, transport)

    async with name_server(script) as server:
        verdict = await ask(server.port, name="192.0.2.7", record="PTR", expected=["host.example"])
    assert verdict.status is ResultStatus.UP, verdict.error
    assert names == ["7.2.0.192.in-addr.arpa."]


@pytest.mark.parametrize(
    ("rcode", "expected"),
    [
        ("NXDOMAIN", "dns_nxdomain"),
        ("NOERROR", "dns_no_data"),
        ("SERVFAIL", "dns_failure"),
        ("REFUSED", "dns_failure"),
        ("FORMERR", "dns_failure"),
    ],
)
async def test_answer_codes_are_told_apart(rcode: str, expected: str) -> None:
    async with name_server(code(rcode)) as server:
        verdict = await ask(server.port, expected=["192.0.2.1"])
    assert kind(verdict) == expected
    assert verdict.dns
    assert verdict.dns.rcode == rcode


async def test_net_01_a_truncated_answer_is_asked_for_again_over_tcp() -> None:
    async with name_server(truncated(records("A", *MANY))) as server:
        verdict = await ask(server.port, expected=["192.0.2.40"])
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.dns
        assert (verdict.dns.count, verdict.dns.transport) == (40, "tcp")
        assert server.asked == ["udp", "tcp"]


async def test_net_01_without_tcp_it_stays_truncated_and_is_no_mismatch() -> None:
    async with name_server(truncated(records("A", *MANY)), tcp=False) as server:
        verdict = await ask(server.port, expected=["192.0.2.40"])
    assert kind(verdict) == "dns_truncated"
    assert verdict.error
    assert "refused the connection" in verdict.error.message


async def test_net_01_a_silent_tcp_side_is_truncated_too() -> None:
    async with name_server(truncated(lambda *_: None)) as server:
        started = time.monotonic()
        verdict = await ask(server.port, timeout=1)
    assert kind(verdict) == "dns_truncated"
    assert time.monotonic() - started < AT_ONCE


async def test_net_01_an_answer_as_large_as_they_come_is_read() -> None:
    everything = [f"10.{number >> 8}.{number & 255}.1" for number in range(4000)]
    async with name_server(truncated(records("A", *everything))) as server:
        verdict = await ask(server.port, match="equals", expected=everything[:100])
    assert kind(verdict) == "record_mismatch"
    assert verdict.error
    assert "and 3895 more" in verdict.error.message
    assert verdict.dns
    assert (verdict.dns.count, len(verdict.dns.records)) == (4000, 100)


async def test_a_lost_question_is_asked_again() -> None:
    lost = [True]

    def script(query: dns.message.Message, transport: Transport) -> bytes | None:
        return None if lost and lost.pop() else records("A", "192.0.2.1")(query, transport)

    async with name_server(script) as server:
        verdict = await ask(server.port)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert server.asked == ["udp", "udp"]


async def test_silence_is_a_timeout() -> None:
    async with name_server(lambda *_: None) as server:
        verdict = await ask(server.port, timeout=0.3)
    assert kind(verdict) == "dns_timeout"
    assert verdict.error
    assert f"127.0.0.1:{server.port} did not answer" in verdict.error.message


async def test_a_closed_port_is_a_failure_at_once() -> None:
    started = time.monotonic()
    assert kind(await ask(closed_port())) == "dns_failure"
    assert time.monotonic() - started < AT_ONCE


async def test_an_answer_to_another_question_is_not_taken() -> None:
    def forged(query: dns.message.Message, _: Transport) -> bytes:
        other = dns.message.make_query("other.example", "A", id=query.id)
        response = dns.message.make_response(other)
        response.answer.append(dns.rrset.from_text("other.example.", 1, "IN", "A", "192.0.2.1"))
        return response.to_wire()

    def wrong_id(query: dns.message.Message, transport: Transport) -> bytes:
        answer = records("A", "192.0.2.1")(query, transport)
        assert answer
        return bytes([answer[0] ^ 1]) + answer[1:]

    async with name_server(forged) as server:
        assert kind(await ask(server.port)) == "dns_failure"
    async with name_server(wrong_id) as server:
        assert kind(await ask(server.port, timeout=0.3)) == "dns_timeout"


async def test_the_systems_servers_are_the_default_and_a_dead_one_costs_a_moment(tmp_path: Path) -> None:
    assert system_servers("# x\nnameserver 192.0.2.1\nnameserver\t2001:db8::1\nnameserver junk\nsearch a\n") == (
        ("192.0.2.1", 53),
        ("2001:db8::1", 53),
    )
    assert system_servers("") == (("127.0.0.1", 53),)
    async with name_server(records("A", "192.0.2.1")) as server:
        question = DnsQuestion("shop.example.", "A")
        servers = (("127.0.0.1", closed_port()), ("127.0.0.1", server.port))
        answer = await question.ask(servers, time.monotonic)
        assert answer.server == f"127.0.0.1:{server.port}"
    # The system's own servers are the operator's choice: a policy for targets does not judge them.
    configuration = tmp_path / "resolv.conf"
    configuration.write_text("nameserver 127.0.0.1\n")
    door = Door(AddressPolicy(), time.monotonic, SystemResolver())
    seen = await DnsProbe(door, SystemClock(), configuration).observe(DnsCheck(name="shop.example"), 0.5)
    assert seen.error is None or seen.error.kind != "blocked_target"


@pytest.mark.parametrize("resolver", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "224.0.0.1"])
async def test_sec_01_a_private_resolver_is_never_asked(resolver: str) -> None:
    async with name_server(records("A", "192.0.2.1")) as canary:
        spec = DnsCheck(name="shop.example", resolver=resolver, port=canary.port)
        verdict = await CheckRunner(AddressPolicy()).run(spec, timeout_seconds=1)
        assert kind(verdict) == "blocked_target"
        assert canary.asked == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_no_answer_breaks_the_reader(data: st.DataObject) -> None:
    question = DnsQuestion("shop.example.", "TXT")
    query = dns.message.from_wire(question._wire)
    sound = records("TXT", '"one" "two"', "three")(query, "udp")
    assert sound
    wire = bytearray(sound)
    changes = st.lists(st.tuples(st.integers(2, len(wire) - 1), st.integers(0, 255)), max_size=8)
    for place, byte in data.draw(changes):
        wire[place] = byte
    cut = data.draw(st.integers(2, len(wire)))
    junk = data.draw(st.binary(max_size=80))
    kinds: set[str] = set()
    for answer in (bytes(wire), bytes(wire[:cut]), bytes(wire[:2]) + junk):
        try:
            question._read(answer, "udp")
        except TargetError as error:
            kinds.add(error.error.kind.value)
    assert kinds <= {"dns_failure"}


async def test_fifty_questions_at_once_leave_no_socket_behind() -> None:
    async with name_server(records("A", "192.0.2.1")) as server:
        verdicts = await asyncio.gather(*(ask(server.port) for _ in range(50)))
        assert {verdict.status for verdict in verdicts} == {ResultStatus.UP}
    await asyncio.sleep(0)


def _without_extension(query: dns.message.Message, transport: Transport) -> bytes | None:
    """A server from before EDNS: it does not know what the question carries."""
    script = code("FORMERR") if query.edns >= 0 else records("A", "192.0.2.1")
    return script(query, transport)


async def test_a_server_that_does_not_know_edns_is_asked_without() -> None:
    async with name_server(_without_extension) as server:
        verdict = await ask(server.port, expected=["192.0.2.1"])
        assert verdict.status is ResultStatus.UP, verdict.error
        assert server.asked == ["udp", "udp"]


def answering(rcode: str, *lines: tuple[str, str, str]) -> Script:
    """Answer with these records: their owner, kind and value."""

    def script(query: dns.message.Message, _: Transport) -> bytes:
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.from_text(rcode))
        response.answer.extend(dns.rrset.from_text(owner, 60, "IN", kind, value) for owner, kind, value in lines)
        return response.to_wire()

    return script


ALIAS = ("shop.example.", "CNAME", "web.example.")


@pytest.mark.parametrize(
    ("script", "expected", "word"),
    [
        pytest.param(answering("NOERROR", ALIAS, ("web.example.", "A", "192.0.2.1")), None, "", id="alias"),
        pytest.param(answering("NOERROR", ("web.example.", "A", "192.0.2.1"), ALIAS), None, "", id="any order"),
        pytest.param(
            answering("NXDOMAIN", ALIAS),
            "dns_nxdomain",
            "shop.example leads to web.example, which does not exist",
            id="alias of nothing",
        ),
        pytest.param(
            answering("NOERROR", ALIAS),
            "dns_no_data",
            "shop.example leads to web.example, which has no A record",
            id="alias without data",
        ),
        pytest.param(
            answering("NOERROR", ("evil.example.", "A", "192.0.2.1")),
            "dns_no_data",
            "no A record",
            id="other owner",
        ),
        pytest.param(
            answering("NOERROR", ALIAS, ("evil.example.", "A", "192.0.2.1")), "dns_no_data", "web", id="other alias"
        ),
        pytest.param(
            answering("NOERROR", ALIAS, ("web.example.", "CNAME", "shop.example.")),
            "dns_no_data",
            "no A record",
            id="circle",
        ),
    ],
)
async def test_only_records_of_the_name_and_its_aliases_count(
    script: Script, expected: str | None, word: str
) -> None:
    async with name_server(script) as server:
        verdict = await ask(server.port)
    assert kind(verdict) == expected
    assert word in (verdict.error.message if verdict.error else "")


@pytest.mark.parametrize(
    ("number", "text", "told"),
    [
        (6, "no valid signature", "SERVFAIL for shop.example (dnssec bogus: no valid signature)"),
        (7, None, "SERVFAIL for shop.example (signature expired)"),
        (65000, "own reason", "own reason)"),
    ],
)
async def test_what_a_server_says_about_its_failure_is_told(number: int, text: str | None, told: str) -> None:
    def script(query: dns.message.Message, _: Transport) -> bytes:
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.SERVFAIL)
        reason = number.to_bytes(2) + (text or "").encode()
        response.use_edns(0, options=[dns.edns.GenericOption(dns.edns.OptionType.EDE, reason)])
        return response.to_wire()

    async with name_server(script) as server:
        verdict = await ask(server.port)
    assert kind(verdict) == "dns_failure"
    assert verdict.error
    assert told in verdict.error.message
