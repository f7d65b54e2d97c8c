"""HTTP as servers really speak it."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import time
import tracemalloc
import zlib

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import ResultStatus
from tests.dice import new_dice
from tests.integration.probes.conftest import AT_ONCE, body_contains, check
from tests.integration.probes.targets import answer, closed_port, serve

GZIP = "Content-Encoding: gzip"


@pytest.mark.parametrize(
    ("method", "reply", "accepted"),
    [
        ("GET", answer("204 No Content", b"", GZIP, length=False), "200-299"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 500\r\n\r\n", "200-299"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\nContent-Length: 500\r\n\r\n", "304"),
        ("GET", answer("200 OK", b"", GZIP), "200-299"),
    ],
    ids=["204", "head", "304", "empty"],
)
async def test_http_01_an_answer_without_a_body_ends_at_the_blank_line(
    runner: CheckRunner, method: str, reply: bytes, accepted: str
) -> None:
    async with serve(reply, linger=True) as target:
        started = time.monotonic()
        status = [{"source": "status", "operator": "in", "value": accepted}]
        bodies = [] if method == "HEAD" else [{"source": "body", "operator": "empty"}]
        verdict = await check(runner, target.url(), method=method, assertions=status + bodies)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert time.monotonic() - started < AT_ONCE


async def test_interim_answers_are_not_the_answer(runner: CheckRunner) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with serve(interim + answer("200 OK", b"ready")) as target:
        verdict = await check(runner, target.url(), assertions=body_contains("ready"))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.status_code == 200


def bomb(layers: int) -> tuple[bytes, str]:
    packed = gzip.compress(bytes(200 * 1024 * 1024))
    for _ in range(layers - 1):
        packed = gzip.compress(packed, mtime=0)
    return packed, "Content-Encoding: " + ", ".join(["gzip"] * layers)


@pytest.mark.parametrize("layers", [1, 2])
async def test_http_02_a_decompression_bomb_costs_no_memory(runner: CheckRunner, layers: int) -> None:
    packed, header = bomb(layers)
    async with serve(answer("200 OK", packed, header)) as target:
        tracemalloc.start()
        try:
            status_only = await check(runner, target.url())
            keyword = await check(runner, target.url(), assertions=body_contains("x"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert status_only.status is ResultStatus.UP, status_only.error
    assert status_only.http
    assert status_only.http.body_bytes == len(packed)
    assert keyword.error
    assert keyword.error.kind == "body_too_large"
    assert peak < 16 * 1024 * 1024


async def test_a_body_of_exactly_one_mebibyte_is_not_too_large(runner: CheckRunner) -> None:
    body = b"x" * (1024 * 1024 - 5) + b"ready"
    async with serve(answer("200 OK", gzip.compress(body, mtime=0), GZIP)) as target:
        verdict = await check(runner, target.url(), assertions=body_contains("ready"))
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_a_status_check_leaves_the_rest_of_a_huge_body_to_the_server(runner: CheckRunner) -> None:
    async def flood(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    async with serve(flood) as target:
        verdict = await check(runner, target.url())
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.body_bytes < 3 * 1024 * 1024


BIG = b'{"n":null,"b":false,"list":[],"s":"0","big":12345678901234567890,"f":0.85}'


@pytest.mark.parametrize(
    ("path", "operator", "value", "kind"),
    [
        ("$.missing", "lt", 120, "json_path_missing"),
        ("$.n", "eq", None, None),
        ("$.n", "lt", 5, "assertion_failed"),
        ("$.b", "eq", False, None),
        ("$.list", "eq", [], None),
        ("$.list", "empty", True, None),
        ("$.s", "eq", 0, "assertion_failed"),
        ("$.big", "eq", 12345678901234567890, None),
        ("$.big", "eq", 12345678901234567891, "assertion_failed"),
        ("$.f", "lt", 0.9, None),
    ],
)
async def test_http_07_json_values_keep_their_type(
    runner: CheckRunner, path: str, operator: str, value: object, kind: str | None
) -> None:
    async with serve(answer("200 OK", BIG)) as target:
        assertion = {"source": "json", "path": path, "operator": operator, "value": value}
        verdict = await check(runner, target.url(), assertions=[assertion])
        assert (verdict.error.kind if verdict.error else None) == kind


async def test_http_07_html_where_json_was_expected_has_its_own_error(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"<html>")) as target:
        assertion = {"source": "json", "path": "$.n", "operator": "eq", "value": 1}
        verdict = await check(runner, target.url(), assertions=[assertion])
        assert verdict.error
        assert verdict.error.kind == "json_error"


OK_JSON = '{"status":"ok"}'
IS_OK = [{"source": "json", "path": "$.status", "operator": "eq", "value": "ok"}]


@pytest.mark.parametrize(
    ("content_type", "body", "assertions"),
    [
        ("application/json", b"\xef\xbb\xbf" + OK_JSON.encode(), IS_OK),
        ("text/html; charset=ISO-8859-1", "Verfügbar".encode("latin-1"), body_contains("Verfügbar")),
        ("text/html", "Status: verfügbar".encode("latin-1"), body_contains("Status")),
        ("text/html; charset=utf8mb4-x", "Verfügbar".encode(), body_contains("Verfügbar")),
        ('application/json; charset="utf-16"', OK_JSON.encode("utf-16"), IS_OK),
    ],
    ids=["bom", "latin-1", "none", "unknown", "utf-16"],
)
async def test_http_08_charsets_are_honoured(
    runner: CheckRunner, content_type: str, body: bytes, assertions: list[dict[str, object]]
) -> None:
    async with serve(answer("200 OK", body, f"Content-Type: {content_type}")) as target:
        verdict = await check(runner, target.url(), assertions=assertions)
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_http_08_random_bytes_are_text_without_the_keyword(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", new_dice().randbytes(100_000))) as target:
        verdict = await check(runner, target.url(), assertions=body_contains("Verfügbar"))
        assert verdict.error
        assert verdict.error.kind == "keyword_missing"
        verdict.error.message.encode("utf-8")
        str(verdict.assertions[1].actual).encode("utf-8")


async def test_http_09_a_header_that_slipped_past_validation_is_never_sent(runner: CheckRunner) -> None:
    async with serve(answer()) as target:
        for value in ("a\r\nX-Evil: 1", "a\nb", "nul\x00", "café", "✓"):
            good = HttpCheck.model_validate({"url": target.url()})
            verdict = await runner.run(good.model_copy(update={"headers": {"X-T": value}}), timeout_seconds=2)
            assert verdict.status is ResultStatus.DOWN
            assert verdict.error
            assert verdict.error.kind == "config_error"
        assert target.requests == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"", "empty_reply"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "incomplete_body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "incomplete_body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "unsupported_encoding"),
        (answer("200 OK", b"not gzip", GZIP), "decode_error"),
        (answer("200 OK", gzip.compress(b"ready" * 99, mtime=0)[:-9], GZIP), "decode_error"),
        (answer("200 OK", b"?", "Content-Encoding: sdch"), "unsupported_encoding"),
        (answer("503 Service Unavailable", b"ready"), "status_code"),
    ],
)
async def test_every_kind_of_bad_answer_has_its_name(runner: CheckRunner, reply: bytes, kind: str) -> None:
    async with serve(reply) as target:
        verdict = await check(runner, target.url(), assertions=body_contains("ready"))
        assert verdict.status is ResultStatus.DOWN
        assert verdict.error
        assert verdict.error.kind == kind, verdict.error


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\n\r\nready",
        b"HTTP/1.0 200 OK\r\n\r\nready",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nrea\r\n2\r\ndy\r\n0\r\nX-T: 1\r\n\r\n",
        answer("200 OK", zlib.compress(b"ready"), "Content-Encoding: deflate"),
        answer("200 OK", gzip.compress(b"ready", mtime=0), GZIP) + b"trailing bytes",
    ],
    ids=["until close", "1.0", "chunked", "deflate", "trailing"],
)
async def test_every_way_to_end_a_body_is_understood(runner: CheckRunner, reply: bytes) -> None:
    async with serve(reply) as target:
        verdict = await check(runner, target.url(), assertions=body_contains("ready"))
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.body_bytes == 5


async def test_a_closed_port_is_refused(runner: CheckRunner) -> None:
    verdict = await check(runner, f"http://127.0.0.1:{closed_port()}/")
    assert verdict.error
    assert verdict.error.kind == "connect_refused"


async def test_a_name_that_does_not_exist_is_named(runner: CheckRunner) -> None:
    verdict = await check(runner, "http://does-not-exist.invalid/")
    assert verdict.error
    assert verdict.error.kind in {"dns_nxdomain", "dns_failure"}  # without a name server nobody can deny it
    assert "does-not-exist.invalid" in verdict.error.message


async def test_a_reset_is_not_an_empty_reply(runner: CheckRunner) -> None:
    async def reset(_: bytes, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serve(reset) as target:
        verdict = await check(runner, target.url())
        assert verdict.error
        assert verdict.error.kind == "connection_reset"


async def test_a_request_carries_what_the_user_typed(runner: CheckRunner) -> None:
    async with serve(answer()) as target:
        await check(
            runner,
            target.url("/a%20b?q=ü&x=1#part").replace("127.0.0.1", "u%40d:SECRET3%3d@127.0.0.1"),
            method="POST",
            headers={"X-Probe": "1", "user-agent": "mine"},
            body="grüße",
        )
        request = target.requests[0].decode("latin-1")
        assert request.startswith("POST /a%20b?q=%C3%BC&x=1 HTTP/1.1\r\n")
        assert target.header(0, "Host") == f"127.0.0.1:{target.port}"
        assert target.header(0, "Authorization") == "Basic dUBkOlNFQ1JFVDM9"
        assert target.header(0, "X-Probe") == "1"
        assert target.header(0, "User-Agent") == "mine"
        assert request.lower().count("user-agent") == 1
        assert target.header(0, "Content-Length") == "7"
        assert target.header(0, "Connection") == "close"


async def test_the_time_until_the_first_byte_is_the_servers(runner: CheckRunner) -> None:
    async def think(_: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(answer("200 OK", b"ready"))

    async with serve(think) as target:
        verdict = await check(runner, target.url())
        spent = verdict.timings_ms
        assert spent.first_byte >= 499
        assert spent.transfer < spent.first_byte
        assert spent.total >= spent.dns + spent.connect + spent.first_byte + spent.transfer - 0.01


async def test_tls_07_every_check_opens_its_own_connection(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"x"), linger=True) as target:
        await check(runner, target.url())
        await check(runner, target.url())
        assert target.connections == 2
        assert target.server
        target.server.close()
        verdict = await check(runner, target.url())
        assert verdict.error
        assert verdict.error.kind == "connect_refused"
