"""The way through a proxy: what it is asked, what it answers, and what may not be reached through it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import Authority, body_contains, check
from tests.integration.probes.conversations import speaking
from tests.integration.probes.http2_server import says, serve_http2
from tests.integration.probes.targets import answer, closed_port, serve

ONLY_THE_PROXY = AddressPolicy(allowed_networks=(ip_network("127.0.0.1/32"),))
LOGIN = base64.b64encode(b"me:PASSW0RD")


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


@dataclass
class ProxyServer:
    port: int = 0
    asked: list[bytes] = field(default_factory=list)

    def at(self, scheme: str) -> dict[str, Any]:
        return {"url": f"{scheme}://127.0.0.1:{self.port}"}


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass everything on to the target on this port of loopback, whatever name it was asked for by."""
    there, back = await asyncio.open_connection("127.0.0.1", port)
    tasks = [asyncio.ensure_future(pump(reader, back)), asyncio.ensure_future(pump(there, writer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        back.transport.abort()  # before anything is waited for: the end of the test may cancel this wait
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def http_proxy(*, login: bool = False, says: bytes | None = None) -> AsyncIterator[ProxyServer]:
    """CONNECT and forwarding; with ``says`` it answers just that."""
    proxy = ProxyServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        proxy.asked.append(head)
        if says is not None:
            writer.write(says)
            return
        if login and b"Proxy-Authorization: Basic " + LOGIN not in head:
            writer.write(answer("407 Proxy Authentication Required", b"", "Proxy-Authenticate: Basic"))
            return
        method, target, _ = head.decode().split(" ", 2)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            await join(reader, writer, int(target.rpartition(":")[2]))
        else:
            writer.write(answer("200 OK", b"forwarded"))

    async with speaking(talk) as port:
        proxy.port = port
        yield proxy


@contextlib.asynccontextmanager
async def socks_proxy(*, login: bool = False, reply: int = 0) -> AsyncIterator[ProxyServer]:
    proxy = ProxyServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x02" if login else b"\x05\x00")
        if login:
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            (size,) = await reader.readexactly(1)
            password = await reader.readexactly(size)
            writer.write(b"\x01\x00" if (user, password) == (b"me", b"PASSW0RD") else b"\x01\x01")
        _, _, _, how = await reader.readexactly(4)
        size = {1: 4, 4: 16}.get(how) or (await reader.readexactly(1))[0]
        address = await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2))
        proxy.asked.append(address)
        writer.write(bytes([5, reply, 0, 1]) + bytes(6))
        if not reply:
            await join(reader, writer, port)

    async with speaking(talk) as port:
        proxy.port = port
        yield proxy


async def test_a_plain_request_is_handed_to_the_proxy_whole(runner: CheckRunner) -> None:
    async with http_proxy() as proxy:
        spec: dict[str, Any] = {
            "proxy": proxy.at("http"),
            "headers": {"X-A": "1"},
            "assertions": body_contains("forwarded"),
        }
        verdict = await check(runner, "http://shop.example.test:81/a?b=1", **spec)
        assert verdict.status is ResultStatus.UP, verdict.error
        request = proxy.asked[0].decode()
        assert request.startswith(
            "GET http://shop.example.test:81/a?b=1 HTTP/1.1\r\nHost: shop.example.test:81\r\n"
        )
        assert "X-A: 1" in request
        assert "Proxy-Authorization" not in request
        assert verdict.http
        assert verdict.http.remote_address == f"127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("login", [False, True])
async def test_https_goes_through_a_tunnel_that_the_proxy_cannot_look_into(
    runner: CheckRunner, authority: Authority, scheme: str, login: bool
) -> None:
    context = authority.context(authority.leaf("shop.example.test"))
    opened = http_proxy(login=login) if scheme == "http" else socks_proxy(login=login)
    async with serve(answer("200 OK", b"ready"), tls=context) as target, opened as proxy:
        way = proxy.at(scheme) | ({"username": "me", "password": "PASSW0RD"} if login else {})
        url = target.url(host="shop.example.test", scheme="https")
        verdict = await check(runner, url, proxy=way, assertions=body_contains("ready"))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.tls
        assert verdict.tls.certificate
        assert b"shop.example.test" in proxy.asked[0]
        assert b"Proxy-Authorization" not in target.requests[0]
        assert verdict.timings_ms.tls > 0


async def test_http2_works_through_a_tunnel(runner: CheckRunner, authority: Authority) -> None:
    async with serve_http2(says(200, b"ready"), authority.context()) as target, http_proxy() as proxy:
        verdict = await check(runner, target.url(), proxy=proxy.at("http"), http_version="2")
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_a_plain_request_goes_through_socks_too(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"ready")) as target, socks_proxy() as proxy:
        for host, sent in (("shop.example.test", b"shop.example.test"), ("127.0.0.1", b"\x7f\x00\x00\x01")):
            verdict = await check(runner, target.url(host=host), proxy=proxy.at("socks5"))
            assert verdict.status is ResultStatus.UP, verdict.error
            assert proxy.asked[-1] == sent


async def test_a_proxy_that_is_not_there_is_named(runner: CheckRunner) -> None:
    proxy = {"url": f"http://127.0.0.1:{closed_port()}"}
    verdict = await check(runner, "https://shop.example.test/", proxy=proxy)
    assert kind(verdict) == "connect_refused"
    assert verdict.error
    assert verdict.error.message.startswith("the proxy: ")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("given", [None, "wrong-one"])
async def test_a_proxy_that_wants_a_login_is_a_failed_authentication(
    runner: CheckRunner, scheme: str, given: str | None
) -> None:
    async with http_proxy(login=True) as proxy:
        way = proxy.at("http") | ({"username": "me", "password": given} if given else {})
        verdict = await check(runner, f"{scheme}://shop.example.test/", proxy=way)
        assert kind(verdict) == "auth_failed"
        assert verdict.error
        assert "proxy" in verdict.error.message
        assert "wrong-one" not in repr(verdict)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "connect_refused"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "connect_unreachable"),
        (b"HTTP/1.1 504 Timeout\r\n\r\n", "connect_timeout"),
        (b"SSH-2.0-x\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\n", "protocol_error"),
        (b"", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000, "protocol_error"),
    ],
)
async def test_what_a_proxy_answers_instead_of_a_tunnel(runner: CheckRunner, said: bytes, expected: str) -> None:
    async with http_proxy(says=said) as proxy:
        verdict = await check(runner, "https://shop.example.test/", proxy=proxy.at("http"))
        assert kind(verdict) == expected, verdict.error
        assert verdict.error
        assert "proxy" in verdict.error.message


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (1, "connect_unreachable"),
        (2, "connect_refused"),
        (4, "connect_unreachable"),
        (5, "connect_refused"),
        (6, "connect_timeout"),
        (99, "protocol_error"),
    ],
)
async def test_what_socks_says_has_its_kind(runner: CheckRunner, reply: int, expected: str) -> None:
    async with socks_proxy(reply=reply) as proxy:
        verdict = await check(runner, "https://shop.example.test/", proxy=proxy.at("socks5"))
        assert kind(verdict) == expected


async def test_a_wrong_login_at_a_socks_proxy_is_a_failed_authentication(runner: CheckRunner) -> None:
    async with socks_proxy(login=True) as proxy:
        way = proxy.at("socks5") | {"username": "me", "password": "wrong-one"}
        assert kind(await check(runner, "http://shop.example.test/", proxy=way)) == "auth_failed"
        assert kind(await check(runner, "http://shop.example.test/", proxy=proxy.at("socks5"))) == "auth_failed"


async def test_sec_01_a_private_proxy_is_not_dialled() -> None:
    async with http_proxy() as proxy:
        spec = HttpCheck.model_validate({"url": "http://192.0.2.1/", "proxy": proxy.at("http")})
        verdict = await CheckRunner(AddressPolicy()).run(spec, timeout_seconds=2)
        assert kind(verdict) == "blocked_target"
        assert proxy.asked == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[::ffff:10.0.0.1]", "169.254.169.254"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_sec_01_a_private_address_is_not_reached_through_a_proxy(scheme: str, host: str) -> None:
    async with http_proxy() as proxy:
        spec = HttpCheck.model_validate({"url": f"{scheme}://{host}/", "proxy": proxy.at("http")})
        verdict = await CheckRunner(ONLY_THE_PROXY).run(spec, timeout_seconds=2)
        assert kind(verdict) == "blocked_target"
        assert proxy.asked == []


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "localhost.", "a.localhost."])
async def test_sec_01_the_proxys_own_machine_is_not_reached_by_name(host: str) -> None:
    policy = AddressPolicy(allowed_networks=(ip_network("127.0.0.2/32"),))
    spec = HttpCheck.model_validate({"url": f"http://{host}/", "proxy": {"url": "http://127.0.0.2:1"}})
    assert kind(await CheckRunner(policy).run(spec, timeout_seconds=2)) == "blocked_target"


async def test_sec_03_a_redirect_behind_a_proxy_is_judged_again() -> None:
    async with http_proxy(says=answer("302 Found", b"", "Location: http://10.0.0.1/")) as proxy:
        spec = HttpCheck.model_validate({"url": "http://shop.example.test/", "proxy": proxy.at("http")})
        verdict = await CheckRunner(ONLY_THE_PROXY).run(spec, timeout_seconds=2)
        assert kind(verdict) == "blocked_target"
        assert len(proxy.asked) == 1


async def test_a_407_of_the_target_is_not_that_of_the_proxy(runner: CheckRunner, authority: Authority) -> None:
    reply = answer("407 Proxy Authentication Required")
    async with serve(reply, tls=authority.context()) as target, http_proxy() as proxy:
        verdict = await check(runner, target.url(scheme="https"), proxy=proxy.at("http"))
        assert kind(verdict) == "status_code"
