"""Answers in HTTP/1.1 and HTTP/2, fed in any pieces, mangled in any way: an outcome, never a fault of ours."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest
import zstandard
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.url import parse_url
from shared.http.answer import Answer
from shared.http.errors import HttpError
from shared.http.http2 import Http2Reader
from shared.http.request import Request
from shared.http.response import ResponseReader
from shared.http.stopwatch import Phase, Stopwatch

Pieces = list[bytes]


def read(pieces: Pieces, *, method: str = "GET", wants_body: bool = True, http2: bool = False) -> Answer:
    """Feed an answer; the outcome is on ``done``."""

    async def feed() -> Answer:
        stopwatch = Stopwatch(asyncio.get_running_loop().time)
        stopwatch.enter(Phase.FIRST_BYTE)
        reader: ResponseReader | Http2Reader
        if http2:
            reader = Http2Reader(method, stopwatch, lambda _: None, wants_body=wants_body, follows=True)
            reader.ask(Request(method, parse_url("https://a.example/")))
        else:
            reader = ResponseReader(method, stopwatch, wants_body=wants_body, follows=True)
        for piece in pieces:
            reader.received(piece)
        reader.ended(None)
        assert reader.done.done()
        reader.excerpt()
        return reader

    return asyncio.run(feed())


def outcome(answer: Answer) -> tuple[object, ...]:
    error = answer.done.exception()
    assert error is None or isinstance(error, HttpError), repr(error)
    return (
        error.error.kind if isinstance(error, HttpError) else None,
        answer.status_code,
        tuple(answer.headers),
        answer.body,
    )


def message(body: bytes, *fields: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", *fields, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


def http2_message(body: bytes, *fields: tuple[str, str]) -> bytes:
    """What a server sends on stream 1, its settings first."""
    server = H2Connection(H2Configuration(client_side=False))
    client = H2Connection()
    client.initiate_connection()
    client.send_headers(1, [(":method", "GET"), (":authority", "a"), (":scheme", "https"), (":path", "/")], True)
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200"), *fields])
    server.send_data(1, body, end_stream=True)
    return server.data_to_send()


CHUNKED = b"3;x=y\r\nrea\r\n2\r\ndy\r\n0\r\nX-T: 1\r\n\r\n"
VALID = [
    message(b"ready", "Content-Type: text/plain", "Set-Cookie: a=b"),
    message(gzip.compress(b"ready" * 99, mtime=0), "Content-Encoding: gzip"),
    message(zlib.compress(b"ready" * 99), "Content-Encoding: deflate"),
    message(brotli.compress(b"ready" * 99), "Content-Encoding: br"),
    message(zstandard.compress(b"ready" * 99), "Content-Encoding: zstd"),
    message(brotli.compress(gzip.compress(b"ready" * 99, mtime=0)), "Content-Encoding: gzip, br"),
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKED,
    b"HTTP/1.0 404 Not Found\r\n\r\nuntil the end",
    b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n",
]
VALID_HTTP2 = [
    http2_message(b"ready", ("content-type", "text/plain")),
    http2_message(gzip.compress(b"ready" * 99, mtime=0), ("content-encoding", "gzip"), ("x-long", "v" * 500)),
]


def test_a_trailer_is_no_header() -> None:
    answer = read([VALID[6]])
    assert outcome(answer)[0] is None
    assert [name for name, _ in answer.headers] == ["transfer-encoding"]


def cut(data: bytes, places: list[int]) -> Pieces:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def mangle(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Replace some bytes at some places by others, any number by any number."""
    for place, removed, added in changes:
        start = place % (len(data) + 1)
        data = data[:start] + added + data[start + removed :]
    return data


places = st.lists(st.integers(0, 2**16), max_size=6)
changes = st.lists(
    st.tuples(st.integers(0, 2**16), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4
)


@settings(deadline=None)
@given(st.sampled_from(VALID), places)
def test_the_pieces_an_answer_comes_in_do_not_matter(data: bytes, where: list[int]) -> None:
    assert outcome(read(cut(data, where))) == outcome(read([data]))


@settings(deadline=None)
@given(st.sampled_from(VALID_HTTP2), places)
def test_the_pieces_an_http2_answer_comes_in_do_not_matter(data: bytes, where: list[int]) -> None:
    whole = outcome(read([data], http2=True))
    assert whole[:2] == (None, 200)
    assert outcome(read(cut(data, where), http2=True)) == whole


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(VALID), changes, places, st.booleans(), st.sampled_from(["GET", "HEAD"]))
def test_a_mangled_answer_has_an_outcome(
    data: bytes, how: list[tuple[int, int, bytes]], where: list[int], wants_body: bool, method: str
) -> None:
    outcome(read(cut(mangle(data, how), where), wants_body=wants_body, method=method))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(VALID_HTTP2), changes, places, st.booleans())
def test_a_mangled_http2_answer_has_an_outcome(
    data: bytes, how: list[tuple[int, int, bytes]], where: list[int], wants_body: bool
) -> None:
    outcome(read(cut(mangle(data, how), where), wants_body=wants_body, http2=True))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_random_bytes_have_an_outcome(pieces: Pieces, http2: bool) -> None:
    assert outcome(read(pieces, http2=http2))[0] is not None


field_bytes = st.binary(max_size=60)


@settings(deadline=None)
@given(st.lists(st.tuples(field_bytes, field_bytes), max_size=8))
def test_any_header_has_an_outcome(fields: list[tuple[bytes, bytes]]) -> None:
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
    outcome(read([b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n"]))


def endless_trailer() -> Pieces:
    return [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        *[b"X-T: " + b"v" * 60_000 + b"\r\n"] * 900,
    ]


def endless_value() -> Pieces:
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: ", *[b"v" * 60_000] * 900]


def endless_interim() -> Pieces:
    return [b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" * 1500] * 900


def endless_chunk_extension() -> Pieces:
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=", *[b"v" * 60_000] * 900]


def endless_pings() -> Pieces:
    return [b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", *[(b"\x00\x00\x08\x06" + bytes(13)) * 3000] * 900]


def endless_continuation() -> Pieces:
    head = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x01\x88"
    return [head, *[b"\x00\x40\x00\x09\x00\x00\x00\x00\x01" + bytes(16384)] * 3000]


@pytest.mark.parametrize(
    ("make", "http2"),
    [
        (endless_trailer, False),
        (endless_value, False),
        (endless_interim, False),
        (endless_chunk_extension, False),
        (endless_pings, True),
        (endless_continuation, True),
    ],
)
def test_what_never_ends_is_given_up_before_it_costs_memory(make: Callable[[], Pieces], http2: bool) -> None:
    pieces = make()
    tracemalloc.start()
    try:
        answer = read(pieces, http2=http2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome(answer)[0] == "protocol_error"
    assert peak < 4 * 1024 * 1024
