"""Content codings, undone piece by piece: no layer ever holds more than a piece and no layer exceeds the limit."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

from shared.domain.errors import ErrorKind
from shared.http.errors import TargetError

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
MAX_CODINGS = 4
BEGINNING_LIMIT = 262144
BEGINNING_KEPT = 65536
"""Bytes of a body that are kept when it fails, for whoever wants to see how it begins."""

_PIECE = 65536
# A few bytes of zstd can stand for 128 KiB of output, and its decoder cannot be told to stop in between.
_ZSTD_SLICE = 128
_ZSTD_WINDOW = 8 * 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


class Coding(Protocol):
    """One layer: yields pieces of bounded size."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes; raises the library's error on nonsense."""
        ...

    def complete(self) -> bool:
        """Whether the stream came to its own end."""
        ...


class _Gzip:
    """One or more members; whatever follows them is ignored, as browsers do."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._held = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, self._held = self._held + data, b""
        while data:
            if self._member.eof and not self._next_member(data):
                return
            yield self._member.decompress(data, _PIECE)
            data = self._member.unconsumed_tail or self._member.unused_data

    def _next_member(self, data: bytes) -> bool:
        if len(data) < len(_GZIP_MAGIC):
            self._held = data
            return False
        if not data.startswith(_GZIP_MAGIC):
            return False
        self._member = zlib.decompressobj(31)
        return True

    def complete(self) -> bool:
        return self._member.eof


class _Deflate:
    """Meant to be zlib (RFC 9110 section 8.4.1.2); some servers send the bare stream."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._stream = zlib.decompressobj(15 if wrapped else -15)
        while data:
            yield self._stream.decompress(data, _PIECE)
            data = self._stream.unconsumed_tail
        while more := self._stream.decompress(b"", _PIECE):
            yield more

    def complete(self) -> bool:
        return self._stream is not None and self._stream.eof


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        # Its own sign that it wants more input says nothing about output that is still inside.
        piece = self._stream.process(data, output_buffer_limit=_PIECE)
        while piece:
            yield piece
            piece = self._stream.process(b"", output_buffer_limit=_PIECE)

    def complete(self) -> bool:
        return bool(self._stream.is_finished())


class _Zstandard:
    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._decoder.decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE):
            part = data[start : start + _ZSTD_SLICE]
            while part:
                if self._frame.eof:
                    self._frame = self._decoder.decompressobj()
                yield self._frame.decompress(part)
                part = self._frame.unused_data

    def complete(self) -> bool:
        return self._frame.eof


_CODINGS: dict[str, Callable[[], Coding]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstandard,
}
_LIBRARY_ERRORS = (zlib.error, brotli.error, zstandard.ZstdError)


class BodyDecoder:
    """Undoes the codings a response names (the last one first) and collects at most ``limit`` bytes.

    Raises ``TargetError``: unsupported_encoding at creation, decode_error and body_too_large while it works.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",")]
        names = [name for name in names if name not in {"", "identity"}]
        if len(names) > MAX_CODINGS:
            raise TargetError(ErrorKind.UNSUPPORTED_ENCODING, f"the body is encoded {len(names)} times over")
        for name in names:
            if name not in _CODINGS:
                raise TargetError(
                    ErrorKind.UNSUPPORTED_ENCODING, f"the body is encoded as {name[:40]!r}, which is unknown here"
                )
        self._layers = [_CODINGS[name]() for name in reversed(names)]
        self._sizes = [0] * (len(names) + 1)
        self._limit = limit
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        try:
            self._pass(data, 0)
        except _LIBRARY_ERRORS as error:
            self._release()
            raise TargetError(ErrorKind.DECODE_ERROR, f"the body does not decode: {error}") from None
        except TargetError:
            self._release()
            raise

    def _release(self) -> None:
        """A failure is kept until its check is over, and windows and bodies are megabytes each."""
        self._layers.clear()
        del self._body[BEGINNING_KEPT:]

    def _pass(self, data: bytes, depth: int) -> None:
        # Every layer counts, not only the last: an inner one may swallow what an outer one blows up.
        self._sizes[depth] += len(data)
        if self._sizes[depth] > self._limit:
            raise TargetError(ErrorKind.BODY_TOO_LARGE, f"the body is larger than {self._limit // 1024} KiB")
        if depth == len(self._layers):
            self._body += data
            return
        for piece in self._layers[depth].feed(data):
            if piece:
                self._pass(piece, depth + 1)

    def finish(self) -> bytes:
        """The whole body; raises ``TargetError`` when a coding breaks off in the middle."""
        if self._sizes[0] and not all(layer.complete() for layer in self._layers):
            raise TargetError(ErrorKind.DECODE_ERROR, "the body does not decode: it breaks off before its end")
        return bytes(self._body)

    def so_far(self, limit: int) -> bytes:
        """The beginning of what has come out by now."""
        return bytes(self._body[:limit])


def beginning(data: bytes, content_encoding: str, limit: int) -> bytes:
    """As much of the beginning of a body as the beginning of its bytes gives; what does not decode is left out."""
    try:
        decoder = BodyDecoder(content_encoding, BEGINNING_LIMIT)
    except TargetError:
        return b""
    try:
        decoder.feed(data)
    except TargetError:
        pass  # a mangled or huge body is shown as far as it goes
    return decoder.so_far(limit)
