"""Frames of HTTP/2 (RFC 9113 section 4.1), as far as they have to be told apart before the library sees them."""

from __future__ import annotations

from collections.abc import Iterator

_HEADER = 9
_LARGEST = 16384
"""Bytes of a frame's content that are allowed: we never ask for more."""

_GOAWAY = 7


class FrameReader:
    """Cuts what comes in into frames; what is too large for one is passed on as it is, for the library to judge."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete with these bytes."""
        self._held += data
        while len(self._held) >= _HEADER:
            content = int.from_bytes(self._held[:3])
            size = len(self._held) if content > _LARGEST else _HEADER + content
            if len(self._held) < size:
                return
            frame = bytes(self._held[:size])
            del self._held[:size]
            yield frame


def is_graceful_goodbye(frame: bytes, stream: int) -> bool:
    """Whether this is a GOAWAY without an error whose sender still answers this stream (section 6.8)."""
    if frame[3] != _GOAWAY or len(frame) < _HEADER + 8:
        return False
    last = int.from_bytes(frame[_HEADER : _HEADER + 4]) & 0x7FFFFFFF
    return frame[_HEADER + 4 : _HEADER + 8] == bytes(4) and last >= stream
