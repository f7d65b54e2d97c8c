"""A reader that acknowledges and remembers, and a sender as patient as the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.contracts.names import CHECKS_STREAM
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import PublishUnknownError
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_consumer, ensure_streams

CONSUMER = "worker-eu"


class Reader:
    """Acknowledges and remembers everything that a loop yields."""

    def __init__(self, loop: PullLoop) -> None:
        self.loop = loop
        self.bodies: list[bytes] = []
        self.deliveries: list[int] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.loop.messages():
            self.bodies.append(message.data)
            self.deliveries.append(message.metadata.num_delivered)
            await message.ack()


def pull_loop(connection: NatsConnection, *, batch: int = 16, **settings: Any) -> PullLoop:
    async def ensure() -> None:
        await ensure_streams(connection.js)
        await ensure_consumer(connection.js, "eu")

    return PullLoop(connection, CHECKS_STREAM, CONSUMER, ensure=ensure, batch=batch, **settings)


@asynccontextmanager
async def reading(connection: NatsConnection, **settings: Any) -> AsyncIterator[Reader]:
    async with pull_loop(connection, **settings) as loop:
        reader = Reader(loop)
        yield reader
        await loop.stop()
        await reader.task


async def send_until_stored(publisher: Publisher, body: bytes, name: str = "", *, subject: str = "") -> None:
    """Publish again with the same id until the stream has it, on the subject of the check ``name``."""
    name = name or body.decode()
    for _ in range(100):
        try:
            await publisher.send(subject or f"checks.eu.{name}", body, message_id=name)
        except PublishUnknownError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("the message could not be stored")
