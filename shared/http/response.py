"""Reads one HTTP/1.1 response off a wire."""

from __future__ import annotations

import httptools

from shared.domain.errors import ErrorKind
from shared.http.answer import BODY_LIMIT, HEADER_LIMIT, Answer, empty_reply, header_text
from shared.http.errors import HttpError, TargetError
from shared.http.stopwatch import Phase, Stopwatch

_AS_BROWSERS_DO = {
    "lenient_headers": True,
    "lenient_chunked_length": True,
    "lenient_transfer_encoding": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}
"""What every client reads although RFC 9112 does not let servers write it: folded fields, line ends without CR,
a length beside chunks, blanks behind the size of a chunk. Dangerous only where a connection has several answers."""


_FIELD_COST = 32
"""What a field counts beside its bytes, as in HTTP/2 (RFC 9113 section 10.5.1): many small ones are large."""

_SLICE = 16384
"""Bytes that are parsed before somebody looks whether the answer is over: much more may come at once."""


class ResponseReader(Answer):
    """An answer in HTTP/1.0 or 1.1."""

    def __init__(
        self, method: str, stopwatch: Stopwatch, *, wants_body: bool, follows: bool, limit: int = BODY_LIMIT
    ) -> None:
        super().__init__(method, stopwatch, wants_body=wants_body, follows=follows, limit=limit)
        self._pieces: list[bytes] = []
        self.on_body = (
            self._pieces.append
        )  # a method of our own for every chunk of a byte would be a bomb of its own
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_AS_BROWSERS_DO)
        self._received = 0
        self._header_size = 0
        self._ends_with_connection = False

    # What the wire calls.

    def received(self, data: bytes) -> None:
        if self.done.done():
            return
        if self._stopwatch.phase is Phase.FIRST_BYTE:
            self._stopwatch.enter(Phase.TRANSFER)
        self._received += len(data)
        for start in range(0, len(data), _SLICE):
            self._parse(data[start : start + _SLICE])
            if self.done.done():
                return
        # A chunk of one byte takes six; what exceeds that by far is a header, or trailers, without an end.
        if self._received > HEADER_LIMIT + 8 * self.body_bytes:
            self._fail(_beside_the_body() if self._head_complete else _header_too_large())

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

    # What the parser calls. Exceptions must not cross it: it would wrap them. It also reads on behind the end of
    # the answer as far as one packet goes, and what is there must not take the place of the answer.

    def on_message_begin(self) -> None:
        if not self._head_complete:
            self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_complete or self.done.done():
            return  # a trailer; nobody asserts anything about those
        self._header_size += len(name) + len(value) + _FIELD_COST
        if self._header_size > HEADER_LIMIT:  # also when all of it came in one packet, with the body
            self._fail(_header_too_large())
        if b"\0" in value:
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the answer is not valid HTTP/1.1: a NUL in a field"))
        self.headers.append((name.decode("latin-1").lower(), header_text(value)))

    def on_headers_complete(self) -> None:
        if self._head_complete or self.done.done():
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return  # an interim answer; the real one follows
        self._ends_with_connection = "chunked" not in self._codings and (
            bool(self.field("transfer-encoding")) or not self.field("content-length")
        )
        self._head(status, self._parser.get_http_version())

    def on_message_complete(self) -> None:
        self._take_pieces()
        if self._head_complete:
            self._complete()

    # Between the two.

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the answer is complete, and another protocol begins, which we do not speak
        except httptools.HttpParserError as error:
            self._take_pieces()
            self._fail(_parser_error(error))
        self._take_pieces()

    def _take_pieces(self) -> None:
        if self._pieces:
            self.take(b"".join(self._pieces))
            self._pieces.clear()

    def _prepare_body(self) -> None:
        if self._codings not in ([], ["chunked"]):
            told = f"the transfer coding {', '.join(self._codings)[:40]!r} is unknown here"
            raise TargetError(ErrorKind.UNSUPPORTED_ENCODING, told)
        super()._prepare_body()

    @property
    def _codings(self) -> list[str]:
        """Transfer codings; the one called identity is none, and some servers name it still."""
        names = (name.strip().lower() for name in self.field("transfer-encoding").split(","))
        return [name for name in names if name not in {"", "identity"}]


def _header_too_large() -> TargetError:
    return TargetError(ErrorKind.PROTOCOL_ERROR, "the header is larger than 64 KiB")


def _beside_the_body() -> TargetError:
    return TargetError(
        ErrorKind.PROTOCOL_ERROR, "more than 64 KiB of chunk sizes and trailers came beside the body"
    )


def _parser_error(error: httptools.HttpParserError) -> TargetError:
    return TargetError(ErrorKind.PROTOCOL_ERROR, f"the answer is not valid HTTP/1.1: {str(error)[:200]}")
