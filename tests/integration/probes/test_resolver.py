"""Names through the system's own service, on threads that slow names cannot use up."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from shared.http.errors import TargetError
from shared.http.resolver import SystemResolver


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


async def test_sixty_slow_names_do_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def slow_for_some(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.startswith("slow"):
            released.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow_for_some)
    resolver = SystemResolver()
    slow = [asyncio.create_task(resolver.resolve(f"slow{number}.example.test", "auto")) for number in range(60)]
    await asyncio.sleep(0)
    started = time.monotonic()
    assert await resolver.resolve("fast.example.test", "auto") == ("192.0.2.1",)
    assert time.monotonic() - started < 1
    released.set()
    await asyncio.gather(*slow)


async def test_a_lookup_that_was_given_up_keeps_its_thread_but_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def slow_for_one(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.startswith("slow"):
            released.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow_for_one)
    resolver = SystemResolver(max_threads=2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await resolver.resolve("slow.example.test", "auto")
    async with asyncio.timeout(5):
        assert await resolver.resolve("fast.example.test", "auto") == ("192.0.2.1",)
    released.set()
    async with asyncio.timeout(5):
        await resolver.resolve("fast.example.test", "auto")
