"""httpx over the guarded door: webhooks and tokens go where checks go, and nowhere else."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from ipaddress import ip_network

import httpx
import pytest

from shared.domain.clock import SystemClock
from shared.domain.errors import ErrorKind
from shared.http.door import Door
from shared.http.errors import BlockedError, HttpError
from shared.http.exchange import Manner
from shared.http.guard import AddressPolicy
from shared.http.transport import GuardedTransport, guarded_client
from tests.integration.probes.conftest import AT_ONCE, HERE, Authority
from tests.integration.probes.targets import Names, answer, closed_port, serve


def door(policy: AddressPolicy = HERE, authority: Authority | None = None, names: Names | None = None) -> Door:
    return Door(policy, SystemClock().monotonic, names or Names({}), authority.ca_file if authority else None)


async def test_a_webhook_is_posted_and_its_answer_read() -> None:
    reply = answer("202 Accepted", gzip.compress(b'{"ok":true}', mtime=0), "Content-Encoding: gzip", "X-A: 1")
    async with serve(reply) as target, guarded_client(door()) as client:
        response = await client.post(target.url("/hook?key=a%20b"), json={"a": "ü"}, headers={"X-Sign": "s"})
        assert response.status_code == 202
        assert response.json() == {"ok": True}
        assert response.headers["x-a"] == "1"
        request = target.requests[0].decode()
        assert request.startswith("POST /hook?key=a%20b HTTP/1.1\r\n")
        assert target.header(0, "Content-Length") == "10"
        assert target.header(0, "Content-Type") == "application/json"
        assert target.header(0, "X-Sign") == "s"
        assert target.header(0, "Connection") == "close"
        assert (target.header(0, "User-Agent") or "").startswith("Tocsin/")
        assert request.lower().count("host:") == request.lower().count("accept-encoding:") == 1


async def test_a_user_in_the_url_becomes_basic_authentication() -> None:
    async with serve(answer()) as target, guarded_client(door()) as client:
        await client.get(target.url().replace("127", "u%40d:p%3d@127"))
        assert target.header(0, "Authorization") == "Basic dUBkOnA9"


async def test_a_redirect_is_handed_over_and_not_followed() -> None:
    async with (
        serve(answer("302 Found", b"", "Location: http://10.0.0.1/")) as target,
        guarded_client(door()) as client,
    ):
        response = await client.get(target.url())
        assert response.status_code == 302
        assert response.headers["location"] == "http://10.0.0.1/"


async def test_tls_is_verified(authority: Authority) -> None:
    async with serve(answer(), tls=authority.context()) as target:
        async with guarded_client(door(authority=authority)) as client:
            assert (await client.get(target.url(scheme="https"))).status_code == 200
        async with guarded_client(door()) as client:
            with pytest.raises(httpx.ConnectError) as failure:
                await client.get(target.url(scheme="https"))
        assert isinstance(failure.value.__cause__, HttpError)
        assert failure.value.__cause__.error.kind in {ErrorKind.TLS_UNTRUSTED, ErrorKind.TLS_CHAIN_INCOMPLETE}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"", httpx.RemoteProtocolError),
        (b"SSH-2.0\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", httpx.RemoteProtocolError),
        (
            answer("200 OK", gzip.compress(bytes(9 * 1024 * 1024), mtime=0), "Content-Encoding: gzip"),
            httpx.ReadError,
        ),
        (answer("200 OK", bytes(1025)), httpx.ReadError),
    ],
)
async def test_every_failure_is_one_of_httpx(reply: bytes, expected: type[httpx.TransportError]) -> None:
    async with serve(reply) as target, guarded_client(door(), Manner(follows=False, limit=1024)) as client:
        with pytest.raises(expected) as failure:
            await client.get(target.url())
        assert failure.value.request.url == target.url()


async def test_a_closed_port_is_a_connect_error() -> None:
    async with guarded_client(door()) as client:
        with pytest.raises(httpx.ConnectError, match="refused"):
            await client.get(f"http://127.0.0.1:{closed_port()}/")


async def test_http_03_a_drip_does_not_stretch_the_deadline_of_a_webhook() -> None:
    async def drip(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serve(drip) as target, guarded_client(door(), timeout_seconds=1) as client:
        started = time.monotonic()
        with pytest.raises(httpx.ReadTimeout, match="after 1 s"):
            await client.get(target.url())
        assert time.monotonic() - started < AT_ONCE


@pytest.mark.parametrize(
    "host",
    [
        *(
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[fe90::1]",
        ),
        *("[fec0::1]", "[fd00::1]", "[::]", "0.0.0.0", "100.64.0.1", "169.254.169.254", "198.18.0.1", "224.0.0.1"),
        *("255.255.255.255", "127.0.0.1", "10.1.2.3"),
    ],
)
async def test_sec_01_a_webhook_into_private_space_is_never_dialled(host: str) -> None:
    async with serve(answer()) as canary:
        async with guarded_client(door(AddressPolicy())) as client:
            with pytest.raises(httpx.TransportError) as failure:
                await client.post(canary.url(host=host))
        assert isinstance(failure.value.__cause__, BlockedError)
        assert canary.connections == 0


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f.1", "0177.0.0.1"])
async def test_sec_03_addresses_in_disguise_are_refused(host: str) -> None:
    async with serve(answer()) as canary:
        async with guarded_client(door()) as client:
            with pytest.raises((httpx.TransportError, httpx.InvalidURL)):
                await client.post(canary.url(host=host))
        assert canary.connections == 0


async def test_sec_02_a_webhook_is_not_rebound() -> None:
    names = Names({"hook.example.test": [("127.0.0.2",), ("127.0.0.1",)]})
    async with serve(answer()) as canary:
        policy = AddressPolicy(allowed_networks=(ip_network("127.0.0.2/32"),))
        async with guarded_client(door(policy, names=names)) as client:
            for expected in ("refused", "blocked"):
                with pytest.raises(httpx.ConnectError, match=expected):
                    await client.post(canary.url(host="hook.example.test"))
        assert names.asked == ["hook.example.test"] * 2
        assert canary.connections == 0


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    async with serve(answer()) as target, guarded_client(door()) as client:
        assert (await client.get(target.url())).status_code == 200


async def test_notif_03_the_address_of_a_webhook_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded_client(door()) as client:
        async with serve(answer("500 Oops")) as target:
            await client.post(target.url("/bot1:SECRET1/send?key=SECRET2"))
        with pytest.raises(httpx.ConnectError) as failure:
            await client.post(f"http://127.0.0.1:{closed_port()}/bot1:SECRET1/send?key=SECRET2")
    assert "SECRET" not in caplog.text
    assert "SECRET" not in str(failure.value)


async def test_the_transport_is_an_ordinary_one() -> None:
    assert issubclass(GuardedTransport, httpx.AsyncBaseTransport)
