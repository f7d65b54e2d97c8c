"""One request and its answer in HTTP/2 (RFC 9113): one stream on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error, InvalidBodyLengthError
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe.exceptions import HyperframeError

from shared.domain.errors import ErrorKind
from shared.http.answer import BODY_LIMIT, HEADER_LIMIT, Answer, empty_reply, header_text
from shared.http.errors import HttpError, TargetError
from shared.http.http2_frames import FrameReader, is_graceful_goodbye
from shared.http.request import Request
from shared.http.stopwatch import Phase, Stopwatch

ALPN = "h2"
_CONTROL_LIMIT = 262144
"""Bytes of frames beside the body; a server that sends more is not answering."""
_FRAME_LIMIT = 500
"""Frames of an answer, and one more for every 8 bytes of its body: each takes time that other checks wait for."""

_WINDOW = 2 * BODY_LIMIT  # more than is ever read: no server waits for us to open the window
_SETTINGS = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
    SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIMIT,
}
_CONFIGURATION = H2Configuration(client_side=True, header_encoding=None)
_LIBRARY_ERRORS = (H2Error, HPACKError, HyperframeError)


class Http2Reader(Answer):
    """An answer in HTTP/2, and what has to be said to get it. ``send`` writes to the wire."""

    def __init__(
        self,
        method: str,
        stopwatch: Stopwatch,
        send: Callable[[bytes], None],
        *,
        wants_body: bool,
        follows: bool,
        limit: int = BODY_LIMIT,
    ) -> None:
        super().__init__(method, stopwatch, wants_body=wants_body, follows=follows, limit=limit)
        self._send = send
        self._connection = H2Connection(_CONFIGURATION)
        self._frames = FrameReader()
        self._frame_count = 0
        self._stream = 1
        self._unsent = b""
        self._received = 0

    def ask(self, request: Request) -> None:
        """Send the preface and the request; raises ``TargetError`` (config_error) for one that cannot be sent."""
        connection, body = self._connection, request.body or b""
        fields = request.http2_fields()
        connection.local_settings = Settings(client=True, initial_values=_SETTINGS)
        connection.initiate_connection()
        connection.increment_flow_control_window(_WINDOW)
        connection.send_headers(self._stream, fields, end_stream=not body)
        self._unsent = body
        self._send_body()
        self._flush()

    # What the wire calls.

    def received(self, data: bytes) -> None:
        if self.done.done():
            return
        self._received += len(data)
        try:
            self._read(data)
            self._send_body()
        except InvalidBodyLengthError as error:
            self._fail(_other_length(error))
        except _LIBRARY_ERRORS as error:
            told = f"the answer is not valid HTTP/2: {str(error)[:200] or type(error).__name__}"
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, told))
        if self._received > _CONTROL_LIMIT + 16 * self.body_bytes:
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the server sends frames without an answer"))
        self._flush()

    def ended(self, error: HttpError | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self._fail(error)
        elif not self._received:
            self._fail(empty_reply())
        else:
            self._incomplete()

    # Between the two.

    def _read(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._frame_count += 1
            if self._frame_count > _FRAME_LIMIT + self.body_bytes // 8:
                self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, "the server sends too many frames for its answer"))
            if self.done.done():
                return
            if is_graceful_goodbye(frame, self._stream):
                continue  # the library would refuse the answer that the server announces with it
            for event in self._connection.receive_data(frame):
                self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id=self._stream, headers=headers) if headers:
                self._stopwatch.enter(Phase.TRANSFER)
                self._take_head(headers)
            case DataReceived(stream_id=self._stream, data=data) if data:
                self.take(data)
            case StreamEnded(stream_id=self._stream):
                self._complete()
            case StreamReset(stream_id=self._stream, error_code=code):
                self._fail(_refusal("reset the stream", code))
            case ConnectionTerminated(error_code=code, last_stream_id=last) if code or not last:
                self._fail(_refusal("ended the connection", code))
            case _:
                pass

    def _take_head(self, headers: list[tuple[bytes, bytes]]) -> None:
        fields = [(name.decode("latin-1"), header_text(value)) for name, value in headers]
        self.headers = [field for field in fields if not field[0].startswith(":")]
        status = dict(fields).get(":status", "")
        if not (status.isascii() and status.isdigit() and len(status) == 3):
            self._fail(TargetError(ErrorKind.PROTOCOL_ERROR, f"{status[:20]!r} is no HTTP/2 status"))
            return
        self._head(int(status), "2")

    def _send_body(self) -> None:
        """As much of the body as the server's window takes; the rest follows when it opens."""
        while self._unsent:
            window = self._connection.local_flow_control_window(self._stream)
            size = min(window, self._connection.max_outbound_frame_size, len(self._unsent))
            if size <= 0:
                return
            piece, self._unsent = self._unsent[:size], self._unsent[size:]
            self._connection.send_data(self._stream, piece, end_stream=not self._unsent)

    def _flush(self) -> None:
        if data := self._connection.data_to_send():
            self._send(data)


def _other_length(error: InvalidBodyLengthError) -> TargetError:
    kind = ErrorKind.INCOMPLETE_BODY if error.actual_length < error.expected_length else ErrorKind.PROTOCOL_ERROR
    return TargetError(
        kind, f"the body has {error.actual_length} bytes, and {error.expected_length} were announced"
    )


def _refusal(what: str, code: ErrorCodes | int | None) -> TargetError:
    name = code.name if isinstance(code, ErrorCodes) else f"error {code}"
    mend = ": ask with http_version 1.1" if code == ErrorCodes.HTTP_1_1_REQUIRED else ""
    return TargetError(ErrorKind.PROTOCOL_ERROR, f"the server {what} ({name}){mend}")
