"""Content codings: right answers, however the bytes are cut, and no more of them than the limit."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest
import zstandard

from shared.http.decoding import BodyDecoder
from shared.http.errors import TargetError
from tests.dice import new_dice

LIMIT = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def unpack(coding: str, data: bytes, step: int = 10**9, limit: int = LIMIT) -> bytes:
    decoder = BodyDecoder(coding, limit)
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
    return decoder.finish()


@pytest.mark.parametrize("coding", PACKERS)
@pytest.mark.parametrize("step", [1, 7, 10**9])
def test_every_coding_is_undone_however_it_is_cut(coding: str, step: int) -> None:
    dice = new_dice()
    for body in (b"", b"x", dice.randbytes(3000), b"0123456789" * 30_000):
        assert unpack(coding, PACKERS[coding](body), step) == body


@pytest.mark.parametrize("step", [1, 10**9])
def test_a_bare_deflate_stream_is_understood_too(step: int) -> None:
    assert unpack("deflate", raw_deflate(b"ready" * 50_000), step) == b"ready" * 50_000


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("step", [1, 10**9])
def test_several_members_are_one_body(coding: str, step: int) -> None:
    assert unpack(coding, PACKERS[coding](b"rea") + PACKERS[coding](b"dy"), step) == b"ready"


def test_stacked_codings_are_undone_from_the_last_to_the_first() -> None:
    assert unpack("gzip, identity, BR", brotli.compress(gzip.compress(b"ready", mtime=0))) == b"ready"


@pytest.mark.parametrize("coding", PACKERS)
def test_http_02_every_coding_is_stopped_at_the_limit(coding: str) -> None:
    packed = PACKERS[coding](bytes(8 * LIMIT))
    with pytest.raises(TargetError) as caught:
        unpack(coding, packed)
    assert caught.value.error.kind == "body_too_large"


@pytest.mark.parametrize("coding", PACKERS)
def test_the_limit_itself_is_allowed(coding: str) -> None:
    assert len(unpack(coding, PACKERS[coding](bytes(LIMIT)))) == LIMIT


def test_http_02_an_inner_layer_counts_as_well() -> None:
    inner = gzip.compress(b"small", mtime=0) + bytes(
        8 * LIMIT
    )  # rubbish after the member, dropped by the inner decoder
    with pytest.raises(TargetError) as caught:
        unpack("gzip, gzip", gzip.compress(inner, mtime=0))
    assert caught.value.error.kind == "body_too_large"


@pytest.mark.parametrize("coding", PACKERS)
def test_a_stream_that_breaks_off_is_a_decode_error(coding: str) -> None:
    with pytest.raises(TargetError) as caught:
        unpack(coding, PACKERS[coding](b"ready" * 1000)[:-3])
    assert caught.value.error.kind == "decode_error"


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_nonsense_is_a_decode_error(coding: str) -> None:
    with pytest.raises(TargetError) as caught:
        unpack(coding, b"this is not compressed at all")
    assert caught.value.error.kind == "decode_error"


@pytest.mark.parametrize("coding", ["sdch", "gzip, foo", ", ".join(["gzip"] * 5)])
def test_an_unknown_coding_is_named(coding: str) -> None:
    with pytest.raises(TargetError) as caught:
        BodyDecoder(coding, LIMIT)
    assert caught.value.error.kind == "unsupported_encoding"


@pytest.mark.parametrize("coding", [*PACKERS, "gzip, gzip"])
def test_http_01_no_bytes_at_all_are_an_empty_body(coding: str) -> None:
    assert BodyDecoder(coding, LIMIT).finish() == b""


@pytest.mark.parametrize("coding", PACKERS)
def test_what_failed_holds_neither_windows_nor_the_body(coding: str) -> None:
    body = random.Random(1).randbytes(2 * LIMIT)
    packed, decoder = PACKERS[coding](body), BodyDecoder(coding, LIMIT)
    decoder.feed(packed[: LIMIT // 2])
    with pytest.raises(TargetError):
        decoder.feed(packed[LIMIT // 2 :])
    assert decoder._layers == []
    assert decoder.so_far(4096) == body[:4096]
    assert len(decoder.so_far(LIMIT)) <= 65536
