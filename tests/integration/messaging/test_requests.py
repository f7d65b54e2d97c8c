"""Requests over core NATS: one that fails is said, and the next one is served all the same."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.requests import RequestServer
from tests.integration.messaging.conftest import until


@pytest.mark.parametrize(
    ("fault", "event"),
    [
        (ValueError("no such check"), "an unreadable request was dropped"),
        (RecursionError("too deep"), "a request was not answered, through a fault of our own"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_request_that_fails_is_said_and_the_next_one_is_served(
    connection: NatsConnection, publisher: Publisher, fault: Exception, event: str
) -> None:
    async def answer(payload: bytes) -> bytes:
        if payload == b"bad":
            raise fault
        return b"{}"

    server = RequestServer(connection, "handover.eu", answer, limit=1)
    await server.start()
    with capture_logs() as told:
        unanswered = await publisher.publish("handover.eu", b"bad")
        await publisher.send("handover.eu", b"good")
        await until(lambda: event in [line["event"] for line in told], what="a word about it")
    assert {line["log_level"] for line in told if line["event"] == event} == {"error"}
    await server.stop()
    await asyncio.wait([unanswered])
    assert unanswered.exception() is not None
