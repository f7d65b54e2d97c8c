from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from shared.testing.nats import FlakyProxy, NatsServer


async def until(condition: Callable[[], bool], *, within: float = 60.0, what: str = "the condition") -> None:
    """Wait for a condition; fails with its name when it does not come true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, f"{what} did not come true within {within:g} s"
        await asyncio.sleep(0.01)


@pytest.fixture
def server(nats: NatsServer) -> NatsServer:
    return nats


@pytest.fixture
async def proxy(server: NatsServer) -> AsyncIterator[FlakyProxy]:
    async with FlakyProxy(server.port) as running:
        yield running
    gc.collect()  # a socket that was left open is told of inside the test that left it
