"""A watcher outside hears from the API process while the installation works, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.contracts.names import CHECKS_STREAM, worker_consumer
from shared.domain.region import PLATFORM_REGION
from shared.messaging.connect import connect
from shared.messaging.streams import ensure_consumer
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.api.test_process import api_process, port_of


class Watcher:
    """Counts the requests to its one path."""

    def __init__(self) -> None:
        self.beats = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.beats += request.startswith(b"GET /secret-token HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@pytest.fixture
async def watcher() -> AsyncIterator[Watcher]:
    made = Watcher()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/secret-token"
    async with server:
        yield made


@pytest.mark.slow
async def test_it_beats_while_every_part_works_and_stops_when_one_does_not(
    database_url: str, nats: NatsServer, watcher: Watcher
) -> None:
    settings = {"TOCSIN_HEARTBEAT_URL": watcher.url, "TOCSIN_HEARTBEAT_SECONDS": "1"}
    async with api_process(database_url, nats.url, TOCSIN_ALLOW_PRIVATE_TARGETS="true", **settings) as process:
        await port_of(process)
        connection = await connect([nats.url], name="tests", buffer_writes=False)

        async def heard_more() -> bool:
            before = watcher.beats
            await asyncio.sleep(2)
            return watcher.beats > before

        async def silent() -> bool:
            return not await heard_more()

        assert watcher.beats == 0, "nothing serves the platform's jobs yet"
        await ensure_consumer(connection.js, PLATFORM_REGION)
        await eventually("beats", heard_more, within=90)
        await connection.js.delete_consumer(CHECKS_STREAM, worker_consumer(PLATFORM_REGION))
        await eventually("silence", silent, within=60)
        await connection.close()
