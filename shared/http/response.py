"""Reads one HTTP/1.1 response off a wire."""

from __future__ import annotations

import httptools

from shared.domain.errors import ErrorKind
from shared.http.answer import BODY_LIMIT, HEADER_LIMIT, Answer, empty_reply, header_text
from shared.http.errors import HttpError, TargetError
from shared.http.stopwatch import Phase, Stopwatch


class ResponseReader(Answer):
    """An answer in HTTP/1.0 or 1.1."""

    def __init__(
        self, method: str, stopwatch: Stopwatch, *, wants_body: bool, follows: bool, limit: int = BODY_LIMIT
    ) -> None:
        super().__init__(method, stopwatch, wants_body=wants_body, follows=follows, limit=limit)
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0
        self._ends_with_connection = False

    # What the wire calls.

    def received(self, data: bytes) -> None:
        if self.done.done():
            return
        if self._stopwatch.phase is Phase.FIRST_BYTE:
            self._stopwatch.enter(Phase.TRANSFER)
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(_parser_error(error))
        else:
            # A chunk of one byte takes six; what exceeds that by far is a header, or trailers, without an end.
            if self._received > HEADER_LIMIT + 8 * self.body_bytes:
                what = "trailer" if self._head_complete else "header"
                self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, f"the {what} is larger than 64 KiB"))

    def ended(self, error: HttpError | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self._fail(error)
        elif not self._received:
            self._fail(empty_reply())
        elif self._ends_with_connection:
            self._complete()
        else:
            self._incomplete()

    # What the parser calls. Exceptions must not cross it: it would wrap them.

    def on_message_begin(self) -> None:
        self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_complete:
            return  # a trailer; nobody asserts anything about those
        self.headers.append((name.decode("latin-1").lower(), header_text(value)))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return  # an interim answer; the real one follows
        self._ends_with_connection = not any(
            name in {"content-length", "transfer-encoding"} for name, _ in self.headers
        )
        self._head(status, self._parser.get_http_version())

    on_body = Answer.take

    def on_message_complete(self) -> None:
        if self._head_complete:
            self._complete()

    # Between the two.

    def _prepare_body(self) -> None:
        transfer = self.field("transfer-encoding").lower()
        if transfer not in {"", "chunked"}:
            raise TargetError(
                ErrorKind.UNSUPPORTED_ENCODING, f"the transfer coding {transfer[:40]!r} is unknown here"
            )
        super()._prepare_body()


def _parser_error(error: httptools.HttpParserError) -> TargetError:
    return TargetError(ErrorKind.PROTOCOL_ERROR, f"the answer is not valid HTTP/1.1: {str(error)[:200]}")
