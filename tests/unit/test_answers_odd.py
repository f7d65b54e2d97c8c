"""Answers as servers write them, although they should not; and what may follow an answer without changing it."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import zstandard
from h2.errors import ErrorCodes
from hpack import Encoder

from shared.domain.errors import ErrorKind
from shared.http.http2 import Http2Reader
from tests.unit.test_answers import outcome, read

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi", id="lines end without CR"),
        pytest.param(OK + b"X-A: b\nContent-Length: 2\r\n\r\nhi", b"hi", id="one line ends without CR"),
        pytest.param(OK + b"X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nhi", b"hi", id="folded field"),
        pytest.param(OK + b"X-A: b\x01\r\nContent-Length: 2\r\n\r\nhi", b"hi", id="control character"),
        pytest.param(CHUNKED + b"Content-Length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi", id="length beside chunks"),
        pytest.param(CHUNKED + b"\r\n2  \r\nhi\r\n0\r\n\r\n", b"hi", id="blanks behind a chunk size"),
        pytest.param(OK + b"Transfer-Encoding: identity\r\n\r\nhi", b"hi", id="identity as a transfer coding"),
        pytest.param(
            OK + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", b"hi", id="identity, length"
        ),
    ],
)
def test_what_every_client_reads_is_read(data: bytes, body: bytes) -> None:
    for pieces in ([data], [bytes([byte]) for byte in data]):
        answer = read(pieces)
        assert outcome(answer)[:2] == (None, 200)
        assert answer.body == body


def test_a_folded_field_is_one_value() -> None:
    answer = read([OK + b"X-A: b\r\n c\r\n\td\r\nContent-Length: 0\r\n\r\n"])
    value = dict(answer.headers)["x-a"]
    assert value.split() == ["b", "c", "d"]
    assert "\n" not in value


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(OK + b"X-A: b\x00c\r\nContent-Length: 2\r\n\r\nhi", id="NUL in a field"),
        pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi", id="two lengths"),
        pytest.param(OK + b"no field\r\n\r\n", id="line that is no field"),
        pytest.param(CHUNKED + b"\r\nzz\r\nhi\r\n0\r\n\r\n", id="chunk size that is no number"),
    ],
)
def test_what_nobody_can_read_is_refused(data: bytes) -> None:
    assert outcome(read([data]))[0] == "protocol_error"


@pytest.mark.parametrize("separate", [False, True], ids=["one packet", "two packets"])
@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        pytest.param(b"500 Broken", b"200 OK", 500, id="bad then good"),
        pytest.param(b"200 OK", b"500 Broken", 200, id="good then bad"),
        pytest.param(b"200 OK", b"408 Request Timeout", 200, id="a farewell of the server"),
    ],
)
def test_what_follows_an_answer_does_not_take_its_place(
    first: bytes, second: bytes, status: int, separate: bool
) -> None:
    whole = b"HTTP/1.1 " + first + b"\r\nX-Mine: 1\r\nContent-Length: 2\r\n\r\nhi"
    rest = b"HTTP/1.1 " + second + b"\r\nX-Other: 1\r\nContent-Length: 3\r\n\r\nbye"
    answer = read([whole, rest] if separate else [whole + rest])
    assert outcome(answer)[:2] == (None, status)
    assert answer.body == b"hi"
    assert [name for name, _ in answer.headers] == ["x-mine", "content-length"]


def test_another_protocol_begins_behind_a_complete_answer() -> None:
    answer = read([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nother words"])
    assert outcome(answer)[:2] == (None, 101)


@pytest.mark.parametrize("size", [1000, 0], ids=["long fields", "many fields"])
@pytest.mark.parametrize("separate", [False, True], ids=["one packet", "many packets"])
def test_a_header_is_too_large_however_it_comes(size: int, separate: bool) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"v" * size) for number in range(90 if size else 5000))
    data = OK + fields + b"Content-Length: 2\r\n\r\nhi"
    pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)] if separate else [data]
    answer = read(pieces)
    error = answer.done.exception()
    assert error
    assert str(error) == "the header is larger than 64 KiB"
    assert len(answer.headers) < 2100


def test_a_body_in_very_small_chunks_is_whole() -> None:
    answer = read([CHUNKED + b"\r\n" + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"])
    assert outcome(answer)[0] is None
    assert answer.body == b"a" * 100_000


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


def head(*fields: tuple[str, str]) -> bytes:
    return frame(1, 4, 1, Encoder().encode([(":status", "200"), *fields]))


def goodbye(last: int, code: int) -> bytes:
    return frame(7, 0, 0, struct.pack(">II", last, code))


SETTINGS = frame(4, 0, 0)
DATA = frame(0, 1, 1, b"hi")
MAXIMUM = 2**31 - 1


@pytest.mark.parametrize(
    ("frames", "kind", "word"),
    [
        pytest.param([goodbye(1, 0), head(), DATA], None, "", id="graceful, then the answer"),
        pytest.param([goodbye(MAXIMUM, 0), head(), goodbye(1, 0), DATA], None, "", id="announced, then graceful"),
        pytest.param([head(), DATA, goodbye(1, 0)], None, "", id="behind the answer"),
        pytest.param([goodbye(1, 0)], "protocol_error", "within the header", id="graceful, and no answer"),
        pytest.param([head(), goodbye(1, 0)], "incomplete_body", "within the body", id="graceful, half an answer"),
        pytest.param([goodbye(0, 0)], "protocol_error", "ended the connection", id="without taking the request"),
        pytest.param([goodbye(1, 11), head(), DATA], "protocol_error", "ENHANCE_YOUR_CALM", id="with an error"),
        pytest.param([frame(7, 0, 0, b"\0\0")], "protocol_error", "not valid HTTP/2", id="cut short"),
        pytest.param(
            [frame(3, 0, 1, ErrorCodes.HTTP_1_1_REQUIRED.to_bytes(4))],
            "protocol_error",
            "ask with http_version 1.1",
            id="another version wanted",
        ),
        pytest.param(
            [head(("content-length", "5")), DATA],
            "incomplete_body",
            "2 bytes, and 5 were announced",
            id="too short",
        ),
        pytest.param(
            [head(("content-length", "1")), DATA], "protocol_error", "2 bytes, and 1 were announced", id="too long"
        ),
        pytest.param([b"\xff\xff\xff" + bytes(50_000)], "protocol_error", "", id="frame larger than allowed"),
    ],
)
@pytest.mark.parametrize("single", [False, True], ids=["at once", "byte by byte"])
def test_how_an_http2_server_ends_a_connection(
    frames: list[bytes], kind: ErrorKind | None, word: str, single: bool
) -> None:
    data = SETTINGS + b"".join(frames)
    answer = read([bytes([byte]) for byte in data] if single else [data], http2=True)
    assert outcome(answer)[0] == kind
    assert word in str(answer.done.exception())
    if kind is None:
        assert (answer.status_code, answer.body) == (200, b"hi")


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(SETTINGS, id="settings"),
        pytest.param(frame(6, 0, 0, bytes(8)), id="pings"),
        pytest.param(frame(8, 0, 0, b"\0\0\0\1"), id="window updates"),
        pytest.param(frame(2, 0, 3, b"\0\0\0\0\1"), id="priorities"),
        pytest.param(frame(3, 0, 3, b"\0\0\0\7"), id="resets"),
        pytest.param(frame(1, 4, 1, Encoder().encode([(":status", "103")])), id="interim answers"),
        pytest.param(frame(99, 0, 0), id="unknown"),
    ],
)
def test_frames_that_bring_nothing_are_not_read_for_long(flood: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    original = Http2Reader._read

    def counted(reader: Http2Reader, data: bytes) -> None:
        original(reader, data)
        taken.append(reader._frame_count)

    monkeypatch.setattr(Http2Reader, "_read", counted)
    answer = read([SETTINGS + flood * 20_000], http2=True)
    assert outcome(answer)[0] == "protocol_error"
    assert taken[-1] < 1000


def test_an_answer_in_small_frames_is_read() -> None:
    many = b"".join(frame(0, 0, 1, b"0123456789") for _ in range(5000))
    answer = read([SETTINGS + head() + many + frame(0, 1, 1)], http2=True)
    assert outcome(answer)[0] is None
    assert answer.body_bytes == 50_000


@pytest.mark.parametrize("layers", [1, 2])
def test_failures_that_are_kept_do_not_keep_what_was_decoded(layers: int) -> None:
    body = bytes(8 * 1024 * 1024)
    for _ in range(layers):
        body = zstandard.compress(body)
    names = b", ".join([b"zstd"] * layers)
    data = OK + b"Content-Encoding: " + names + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    tracemalloc.start()
    try:
        kept = [read([data]) for _ in range(20)]
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {outcome(answer)[0] for answer in kept} == {"body_too_large"}
    assert current < 4 * 1024 * 1024
