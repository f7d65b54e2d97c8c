"""One answer, whatever version of HTTP it comes in: what is kept of it, and when it is over."""

from __future__ import annotations

import asyncio

from shared.domain.errors import ErrorKind
from shared.http.decoding import BodyDecoder, beginning
from shared.http.errors import HttpError, TargetError
from shared.http.stopwatch import Stopwatch

BODY_LIMIT = 1024 * 1024
HEADER_LIMIT = 65536
EXCERPT = 4096
_WITHOUT_BODY = frozenset({204, 304})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Answer:
    """``done`` is resolved when the answer is complete, or fails with an ``HttpError``.

    Without ``wants_body`` the body is received but neither decoded nor kept: that the server finishes what it
    began is part of being up, what it says is not needed. From ``limit`` bytes on the rest is left to the server.
    A redirect that will be followed is over with its header.
    """

    def __init__(
        self, method: str, stopwatch: Stopwatch, *, wants_body: bool, follows: bool, limit: int = BODY_LIMIT
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status_code = 0
        self.version = ""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.body_bytes = 0
        self._method = method
        self._stopwatch = stopwatch
        self._wants_body = wants_body
        self._follows = follows
        self._limit = limit
        self._decoder: BodyDecoder | None = None
        self._beginning: bytearray | None = None
        self._head_complete = False

    @property
    def location(self) -> str | None:
        """Where a redirect leads; null for every other answer, and when redirects are not followed."""
        if not self._follows or self.status_code not in _REDIRECTS:
            return None
        return self.field("location") or None

    def field(self, name: str) -> str:
        """The value of a header field, several of them joined by commas; empty when there is none."""
        return ",".join(value for known, value in self.headers if known == name)

    def excerpt(self) -> bytes:
        """The beginning of a body that is not in ``body``: incomplete, or of an answer that was no success."""
        if self._decoder is not None:
            return b"" if self.body else self._decoder.so_far(EXCERPT)
        if not self._beginning:
            return b""
        return beginning(bytes(self._beginning), self.field("content-encoding"), EXCERPT)

    # What the reader of a protocol calls.

    def _head(self, status: int, version: str) -> None:
        """The header is complete; what it says may end the answer."""
        self.status_code = status
        self.version = version
        self._head_complete = True
        if self._method == "HEAD" or status in _WITHOUT_BODY or status == 101 or self.location:
            self._complete()
            return
        try:
            self._prepare_body()
        except TargetError as error:
            self._fail(error)

    def _prepare_body(self) -> None:
        if self._wants_body:
            self._decoder = BodyDecoder(self.field("content-encoding"), self._limit)
        elif not 200 <= self.status_code < 300:
            self._beginning = bytearray()

    def take(self, data: bytes) -> None:
        """The next bytes of the body."""
        if self.done.done():
            return
        self.body_bytes += len(data)
        if self._decoder is None:
            if self._beginning is not None and len(self._beginning) < EXCERPT:
                self._beginning += data[:EXCERPT]
            if self.body_bytes > self._limit:
                self._complete()
            return
        try:
            self._decoder.feed(data)
        except TargetError as error:
            self._fail(error)

    def _complete(self) -> None:
        if self.done.done():
            return
        self._stopwatch.pause()
        try:
            if self._decoder is not None:
                self.body = self._decoder.finish()
                self.body_bytes = len(self.body)
        except TargetError as error:
            self._fail(error)
        else:
            self.done.set_result(None)

    def _incomplete(self) -> None:
        """The connection ended in order, but too early."""
        if not self._head_complete:
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the server closed the connection within the header"))
            return
        told = f"the server closed the connection after {self.body_bytes} bytes, within the body"
        self._fail(TargetError(ErrorKind.INCOMPLETE_BODY, told))

    def _fail(self, error: HttpError) -> None:
        if self.done.done():
            return
        # A traceback holds the frames that decoded, with pieces of megabytes: a failure is kept, they are not.
        error.__context__ = None
        self.done.set_exception(error.with_traceback(None))


def header_text(value: bytes) -> str:
    """A field value as text: UTF-8 where it is that, else byte by byte."""
    try:
        return value.decode("utf-8").strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def empty_reply() -> TargetError:
    return TargetError(ErrorKind.EMPTY_REPLY, "the server closed the connection without an answer")
