"""HTTP/2: the same checks, verdicts and bounds over another protocol."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.result import ResultStatus
from tests.integration.probes.conftest import AT_ONCE, Authority, body_contains, check
from tests.integration.probes.conversations import speaking
from tests.integration.probes.http2_server import Http2Target, Received, Reply, says, serve_http2
from tests.integration.probes.targets import answer, serve


@contextlib.asynccontextmanager
async def secure(authority: Authority, reply: Reply) -> AsyncIterator[Http2Target]:
    async with serve_http2(reply, authority.context()) as target:
        yield target


async def test_http2_is_spoken_where_it_is_asked_for(runner: CheckRunner, authority: Authority) -> None:
    async with secure(authority, says(200, b"ready", ("x-a", "1"))) as target:
        version = {"source": "http_version", "operator": "eq", "value": "2"}
        header = {"source": "header", "path": "X-A", "operator": "eq", "value": "1"}
        for wanted in ("auto", "2"):
            verdict = await check(
                runner,
                target.url("/a?b=1"),
                http_version=wanted,
                headers={"X-Key": "K\tL", "Host": "shop.example"},
                assertions=[version, header, *body_contains("ready")],
            )
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.http
            assert verdict.http.version == "2"
            assert verdict.timings_ms.first_byte > 0
        sent = target.requests[0].headers
        assert sent[":path"] == "/a?b=1"
        assert sent[":authority"] == "shop.example"
        assert sent["x-key"] == "K\tL"
        assert not {"connection", "host"} & sent.keys()


async def test_auto_speaks_http_1_with_servers_that_know_nothing_else(
    runner: CheckRunner, authority: Authority
) -> None:
    async with serve(answer("200 OK", b"x"), tls=authority.context()) as target:
        verdict = await check(runner, target.url(scheme="https"), http_version="auto")
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.version == "1.1"


async def test_version_2_fails_where_the_server_does_not_offer_it(
    runner: CheckRunner, authority: Authority
) -> None:
    async with serve(answer("200 OK", b"x"), tls=authority.context()) as target:
        verdict = await check(runner, target.url(scheme="https"), http_version="2")
        assert verdict.error
        assert verdict.error.kind == "protocol_error"
        assert "HTTP/2" in verdict.error.message
        assert target.requests == []


async def test_version_2_without_tls_is_spoken_at_once(runner: CheckRunner) -> None:
    async with serve_http2(says(204), None) as target:
        verdict = await check(runner, target.url(scheme="http"), http_version="2")
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_a_body_larger_than_the_window_of_the_server_arrives_whole(
    runner: CheckRunner, authority: Authority
) -> None:
    async with secure(authority, says(200)) as target:
        body = "ü" * 60_000
        verdict = await check(runner, target.url(), http_version="2", method="POST", body=body)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert target.requests[0].body == body.encode()
        assert target.requests[0].headers["content-length"] == "120000"


async def test_redirects_and_cookies_work_over_http2(runner: CheckRunner, authority: Authority) -> None:
    def gate(connection: H2Connection, request: Received) -> None:
        if request.headers.get("cookie") == "s=1":
            says(200, b"in")(connection, request)
        else:
            says(302, b"", ("location", "/"), ("set-cookie", "s=1"))(connection, request)

    async with secure(authority, gate) as target:
        verdict = await check(runner, target.url(), http_version="2", assertions=body_contains("in"))
        assert verdict.status is ResultStatus.UP, verdict.error


def _reset(connection: H2Connection, request: Received) -> None:
    connection.reset_stream(request.stream, ErrorCodes.REFUSED_STREAM)


def _goodbye(connection: H2Connection, _: Received) -> None:
    connection.close_connection(ErrorCodes.HTTP_1_1_REQUIRED)


def _half(connection: H2Connection, request: Received) -> None:
    connection.send_headers(request.stream, [(":status", "200")])
    connection.send_data(request.stream, b"abc")
    connection.reset_stream(request.stream, ErrorCodes.INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("reply", "kind", "word"),
    [
        (_reset, "protocol_error", "REFUSED_STREAM"),
        (_goodbye, "protocol_error", "HTTP_1_1_REQUIRED"),
        (_half, "protocol_error", "INTERNAL_ERROR"),
        (says(503, b"busy"), "status_code", "503"),
        (says(200, b"no gzip", ("content-encoding", "gzip")), "decode_error", "decode"),
    ],
)
async def test_every_way_to_fail_in_http2_has_its_name(
    runner: CheckRunner, authority: Authority, reply: Reply, kind: str, word: str
) -> None:
    async with secure(authority, reply) as target:
        verdict = await check(runner, target.url(), http_version="2", assertions=body_contains("x"))
        assert verdict.error
        assert verdict.error.kind == kind, verdict.error
        assert word in verdict.error.message


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"]
)
async def test_what_is_no_http2_is_no_answer(runner: CheckRunner, said: bytes) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(said)

    async with speaking(babble) as port:
        verdict = await check(runner, f"http://127.0.0.1:{port}/", http_version="2")
    assert verdict.error
    assert verdict.error.kind in {"protocol_error", "empty_reply", "connection_reset"}


async def test_http_02_a_bomb_over_http2_costs_no_memory(runner: CheckRunner, authority: Authority) -> None:
    packed = gzip.compress(gzip.compress(bytes(200 * 1024 * 1024)))
    async with secure(authority, says(200, packed, ("content-encoding", "gzip, gzip"))) as target:
        tracemalloc.start()
        try:
            verdict = await check(runner, target.url(), http_version="2", assertions=body_contains("x"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert verdict.error
    assert verdict.error.kind == "body_too_large"
    assert peak < 16 * 1024 * 1024


async def test_http_03_a_server_that_only_pings_does_not_stretch_the_deadline(runner: CheckRunner) -> None:
    async def ping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        while True:
            writer.write(b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with speaking(ping) as port:
        started = time.monotonic()
        verdict = await check(runner, f"http://127.0.0.1:{port}/", http_version="2", timeout=1)
        assert verdict.error
        assert verdict.error.kind == "timeout"
        assert time.monotonic() - started < AT_ONCE
