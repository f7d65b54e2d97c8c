"""A worker that reaches none of its canaries doubts itself before it blames a target."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from monitoring_worker.canaries import FRESH_SECONDS, Canaries
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.canary import canary_check
from shared.http.guard import AddressPolicy
from shared.settings import CanarySettings, ConfigurationError, load
from shared.testing.clock import FakeClock
from shared.testing.nats import free_port


class Canary:
    """Answers HTTP with an error: it is there, and more is not asked of it."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.port = free_port()  # it listens there again after a stop
        self.visits = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        with contextlib.suppress(ConnectionError):
            await reader.readline()
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    canary = Canary()
    await canary.start()
    yield canary
    await canary.stop()


def watch(clock: FakeClock, *canaries: str) -> Canaries:
    return Canaries(canaries, CheckRunner(AddressPolicy(allow_private=True)), clock)


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}/", "127.0.0.1:{}"])
async def test_an_answer_of_any_kind_is_enough(canary: Canary, form: str) -> None:
    canaries = watch(FakeClock(), form.format(canary.port), "127.0.0.1:1")
    assert await canaries.doubt(0.0) is None
    assert canaries.trouble is None


async def test_failures_are_doubted_while_all_canaries_fail_and_no_longer(canary: Canary) -> None:
    clock = FakeClock()
    canaries = watch(clock, f"127.0.0.1:{canary.port}")
    await canary.stop()
    began = clock.monotonic()
    doubt = await canaries.doubt(began)
    assert doubt == f"this worker fails its canaries: 127.0.0.1:{canary.port}" == canaries.trouble
    await canary.start()
    clock.advance(FRESH_SECONDS + 1)
    # The network came back before this check ended; it was away while it ran.
    assert await canaries.doubt(began) == "its canaries failed while it ran"
    assert not canaries.trouble
    assert await canaries.doubt(clock.monotonic()) is None


async def test_a_check_that_begins_right_after_a_failed_look_is_doubted_as_well(canary: Canary) -> None:
    clock = FakeClock()
    canaries = watch(clock, f"127.0.0.1:{canary.port}")
    await canary.stop()
    assert await canaries.doubt(clock.monotonic())
    clock.advance(FRESH_SECONDS / 2)
    assert await canaries.doubt(clock.monotonic()) == f"this worker fails its canaries: 127.0.0.1:{canary.port}"
    await canary.start()


async def test_a_look_from_before_a_check_vouches_for_nothing(canary: Canary) -> None:
    clock = FakeClock()
    canaries = watch(clock, f"127.0.0.1:{canary.port}")
    assert await canaries.doubt(clock.monotonic()) is None
    await canary.stop()
    clock.advance(FRESH_SECONDS / 2)
    doubts = await asyncio.gather(*(canaries.doubt(clock.monotonic()) for _ in range(20)))
    assert set(doubts) == {f"this worker fails its canaries: 127.0.0.1:{canary.port}"}
    await canary.start()


async def test_many_failures_at_once_ask_the_canaries_once(canary: Canary) -> None:
    clock = FakeClock()
    canaries = watch(clock, f"http://127.0.0.1:{canary.port}/")
    assert await asyncio.gather(*(canaries.doubt(0.0) for _ in range(50))) == [None] * 50
    assert await canaries.doubt(0.0) is None
    assert canary.visits == 1
    clock.advance(FRESH_SECONDS + 0.1)
    await canaries.doubt(0.0)
    assert canary.visits == 2


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("https://status.example/", "https://status.example/"),
        ("status.example", ("status.example", 443)),
        ("192.0.2.1:53", ("192.0.2.1", 53)),
        ("[2001:db8::1]:53", ("2001:db8::1", 53)),
    ],
)
def test_forms_of_a_canary(text: str, target: object) -> None:
    check = canary_check(text)
    assert target == (check.url if check.kind == "http" else (check.host, check.port))


@pytest.mark.parametrize("text", ["ftp://x/", "a b", "host:99999", "http://", ":80"])
def test_a_canary_that_makes_no_sense_stops_the_start(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_CANARIES", f"https://status.example/,{text}")
    with pytest.raises(ConfigurationError, match=r"TOCSIN_CANARIES: .*is no URL, host or host:port"):
        load(CanarySettings)
