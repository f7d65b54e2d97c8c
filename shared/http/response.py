"""Reads one HTTP/1.1 response off a wire, and knows when it is over."""

from __future__ import annotations

import asyncio

import httptools

from shared.domain.errors import ErrorKind
from shared.http.decoding import BodyDecoder
from shared.http.errors import HttpError, TargetError
from shared.http.stopwatch import Phase, Stopwatch

BODY_LIMIT = 1024 * 1024
HEADER_LIMIT = 65536
_WITHOUT_BODY = frozenset({204, 304})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class ResponseReader:
    """Receives bytes; ``done`` is resolved when the response is complete, or fails with an ``HttpError``.

    Without ``wants_body`` the body is received but neither decoded nor kept: that the server finishes what it
    began is part of being up, what it says is not needed. From 1 MiB on the rest is left to the server. A redirect
    that will be followed is over with its header.
    """

    def __init__(self, method: str, stopwatch: Stopwatch, *, wants_body: bool, follows: bool) -> None:
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
        self._parser = httptools.HttpResponseParser(self)
        self._decoder: BodyDecoder | None = None
        self._head_bytes = 0
        self._head_complete = False
        self._ends_with_connection = False

    @property
    def location(self) -> str | None:
        """Where a redirect leads; null for every other answer, and when redirects are not followed."""
        if not self._follows or self.status_code not in _REDIRECTS:
            return None
        return self._field("location") or None

    # What the wire calls.

    def received(self, data: bytes) -> None:
        if self.done.done():
            return
        if self._stopwatch.phase is Phase.FIRST_BYTE:
            self._stopwatch.enter(Phase.TRANSFER)
        if not self._head_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(_parser_error(error))
        else:
            if not self._head_complete and self._head_bytes > HEADER_LIMIT:
                self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the header is larger than 64 KiB"))

    def ended(self, error: HttpError | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self._fail(error)
        elif not self._head_bytes:
            self._fail(TargetError(ErrorKind.EMPTY_REPLY, "the server closed the connection without an answer"))
        elif not self._head_complete:
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the server closed the connection within the header"))
        elif self._ends_with_connection:
            self._complete()
        else:
            self._fail(
                TargetError(
                    ErrorKind.INCOMPLETE_BODY,
                    f"the server closed the connection after {self.body_bytes} bytes, within the body",
                )
            )

    # What the parser calls. Exceptions must not cross it: it would wrap them.

    def on_message_begin(self) -> None:
        self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), _text(value).strip()))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return  # an interim answer; the real one follows
        self.status_code = status
        self.version = self._parser.get_http_version()
        self._head_complete = True
        if self._method == "HEAD" or status in _WITHOUT_BODY or status == 101 or self.location:
            self._complete()
            return
        self._ends_with_connection = not any(
            name in {"content-length", "transfer-encoding"} for name, _ in self.headers
        )
        try:
            self._prepare_body()
        except TargetError as error:
            self._fail(error)

    def on_body(self, data: bytes) -> None:
        if self.done.done():
            return
        self.body_bytes += len(data)
        if self._decoder is None:
            if self.body_bytes > BODY_LIMIT:
                self._complete()
            return
        try:
            self._decoder.feed(data)
        except TargetError as error:
            self._fail(error)

    def on_message_complete(self) -> None:
        if self._head_complete:
            self._complete()

    # Between the two.

    def _prepare_body(self) -> None:
        transfer = self._field("transfer-encoding").lower()
        if transfer not in {"", "chunked"}:
            raise TargetError(
                ErrorKind.UNSUPPORTED_ENCODING, f"the transfer coding {transfer[:40]!r} is unknown here"
            )
        if self._wants_body:
            self._decoder = BodyDecoder(self._field("content-encoding"), BODY_LIMIT)

    def _field(self, name: str) -> str:
        return ",".join(value for field, value in self.headers if field == name)

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

    def _fail(self, error: HttpError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _parser_error(error: httptools.HttpParserError) -> TargetError:
    return TargetError(ErrorKind.PROTOCOL_ERROR, f"the answer is not valid HTTP/1.1: {str(error)[:200]}")
