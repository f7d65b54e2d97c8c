from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from shared.testing.nats import FlakyProxy, NatsServer

# The client leaves the socket of a handshake that got no answer to the garbage collector, which closes it.
tolerates_unanswered_handshakes = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


async def until(condition: Callable[[], bool], *, within: float = 30.0, what: str = "the condition") -> None:
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
    gc.collect()  # see tolerates_unanswered_handshakes: its warning must come inside this test
