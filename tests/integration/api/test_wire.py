"""Clients that send nothing, too slowly, too much, or what is no HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
import uvicorn
from fastapi import FastAPI

from api import http_protocol
from api.http_protocol import BoundedProtocol

GET = b"GET /livez HTTP/1.1\r\nHost: tocsin.test\r\n"
POST = b"POST /v1/monitors HTTP/1.1\r\nHost: tocsin.test\r\nContent-Type: application/json\r\n"
ALONE = b"Connection: close\r\n\r\n"


@pytest.fixture
async def port(app: FastAPI) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def answer(port: int, *parts: bytes) -> bytes:
    """What comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def problem(received: bytes) -> tuple[int, str]:
    """Status and code of an answer, which has to be a problem document."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower(), received
    document = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {document['status']} ".encode())
    return document["status"], document["code"]


MALFORMED = {
    "no HTTP": b"\x16\x03\x01\x00\xa5\x01",
    "a length below zero": POST + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length beside chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "an unknown method": b"BREW /v1/monitors HTTP/1.1\r\nHost: tocsin.test\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_no_http_is_a_problem_too(case: str, port: int) -> None:
    assert problem(await answer(port, MALFORMED[case])) == (HTTPStatus.BAD_REQUEST, "bad_request")


SILENT = {
    "says nothing": (b"",),
    "stops within the head": (GET, b"X-Slow: "),
    "stops after an answer": (GET + b"\r\n", GET),
}


@pytest.mark.parametrize("case", SILENT)
async def test_a_request_that_does_not_come_is_not_waited_for(
    case: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    received = await answer(port, *SILENT[case])
    assert problem(received[received.rindex(b"HTTP/1.1") :]) == (408, "request_timeout")


async def test_a_body_that_does_not_come_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.5)
    await answer(port, POST + b"Content-Length: 100\r\n\r\n", b"{")


async def test_an_endless_head_is_cut_off(port: int) -> None:
    received = await answer(port, GET, b"X-Long: ", *[b"a" * 16_384] * 40)
    assert received == b"" or problem(received) == (431, "request_header_fields_too_large")


async def test_an_answer_that_takes_longer_than_a_request_may_is_given(
    app: FastAPI, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow() -> dict[str, bool]:
        await asyncio.sleep(4.0)
        return {"done": True}

    app.add_api_route("/slow", slow)
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 2.0)
    received = await answer(port, b"GET /slow HTTP/1.1\r\nHost: tocsin.test\r\n" + ALONE)
    assert received.startswith(b"HTTP/1.1 200 "), received


async def test_pipelined_requests_are_all_answered(port: int) -> None:
    received = await answer(port, (GET + b"\r\n") * 20 + GET + ALONE)
    assert received.count(b"HTTP/1.1 200 ") == 21
