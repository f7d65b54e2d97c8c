"""Names through the system's own service, on threads that slow names cannot use up."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck, PingCheck, TcpCheck
from shared.domain.result import ResultStatus
from shared.http.errors import TargetError
from shared.http.resolver import SystemResolver
from tests.integration.probes.conftest import AT_ONCE, HERE
from tests.integration.probes.targets import closed_port


def names_that_hang(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """From here on names that begin with slow are looked up for as long as the event is not set."""
    released = threading.Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.startswith("slow"):
            released.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return released


async def test_localhost_comes_from_the_hosts_file() -> None:
    assert "127.0.0.1" in await SystemResolver().resolve("localhost", "auto")


async def test_an_address_needs_no_lookup() -> None:
    resolver = SystemResolver(max_threads=0)
    assert await resolver.resolve("::1", "auto") == ("::1",)
    with pytest.raises(TargetError, match="family"):
        await resolver.resolve("127.0.0.1", "6")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (socket.EAI_NONAME, "dns_nxdomain"),
        (socket.EAI_NODATA, "dns_no_data"),
        (socket.EAI_AGAIN, "dns_failure"),
        (socket.EAI_FAIL, "dns_failure"),
    ],
)
async def test_every_answer_of_the_system_has_its_name(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(code, "scripted")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(TargetError) as caught:
        await SystemResolver().resolve("name.example.test", "auto")
    assert caught.value.error.kind == kind


async def test_two_hundred_and_fifty_slow_names_do_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    released = names_that_hang(monkeypatch)
    resolver = SystemResolver()
    slow = [asyncio.create_task(resolver.resolve(f"slow{number}.example.test", "auto")) for number in range(250)]
    await asyncio.sleep(0)
    async with asyncio.timeout(AT_ONCE):
        assert await resolver.resolve("fast.example.test", "auto") == ("192.0.2.1",)
    released.set()
    await asyncio.gather(*slow)


async def test_names_that_all_hang_are_not_held_against_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of a worker's names may hang with their zone: what the rest would be told is no evidence."""
    released = names_that_hang(monkeypatch)
    resolver = SystemResolver(max_threads=3)
    slow = [asyncio.create_task(resolver.resolve(f"slow{number}.example.test", "auto")) for number in range(3)]
    await asyncio.sleep(0)
    runner = CheckRunner(HERE, resolver=resolver)
    oauth2 = {"kind": "oauth2", "token_url": "http://t.example.test/", "client_id": "a", "client_secret": "b"}
    for spec in (
        HttpCheck(url="http://fast.example.test/"),
        HttpCheck.model_validate({"url": f"http://127.0.0.1:{closed_port()}/", "auth": oauth2}),
        TcpCheck(host="fast.example.test", port=1),
        PingCheck(host="fast.example.test"),
    ):
        verdict = await runner.run(spec, timeout_seconds=AT_ONCE, retries=2)
        assert verdict.status is ResultStatus.MISSED
        assert verdict.error
        assert verdict.error.kind == "overloaded"
    released.set()
    await asyncio.gather(*slow)
    async with asyncio.timeout(AT_ONCE):
        assert await resolver.resolve("fast.example.test", "auto") == ("192.0.2.1",)


async def test_a_lookup_that_was_given_up_keeps_its_thread_but_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = names_that_hang(monkeypatch)
    resolver = SystemResolver(max_threads=2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await resolver.resolve("slow.example.test", "auto")
    async with asyncio.timeout(AT_ONCE):
        assert await resolver.resolve("fast.example.test", "auto") == ("192.0.2.1",)
    released.set()
    async with asyncio.timeout(AT_ONCE):
        await resolver.resolve("fast.example.test", "auto")
