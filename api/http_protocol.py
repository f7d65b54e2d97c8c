"""HTTP/1.1 on the wire, bounded: who says nothing, or never stops talking, keeps neither a connection nor memory.

Uvicorn waits for a request without end and holds whatever comes as its header.
Anybody can send that, without a key.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.errors import problem_response

HEAD_SECONDS: Final = 30.0
BODY_SECONDS: Final = 60.0
MAX_HEAD_BYTES: Final = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is wrong below HTTP is answered in the form of all other errors."""

    _timer: asyncio.TimerHandle | None = None
    _heads_begun = 0
    _head_bytes = 0
    _in_head = False
    _was_asked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._allow(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        heads_begun = self._heads_begun
        super().data_received(data)
        # What came together with the beginning of a head is bounded by what is read from a socket at once.
        if self._in_head and heads_begun == self._heads_begun:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the header of a request is too large")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes, self._heads_begun = True, 0, self._heads_begun + 1
        self._allow(HEAD_SECONDS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._allow(BODY_SECONDS)
        super().on_headers_complete()
        self._was_asked = True

    def on_message_complete(self) -> None:
        self._stop()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _allow(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        self._in_head = False
        if not self._was_asked or self.cycle.response_complete:  # or else another answer is on its way
            answer = problem_response(status, status.name.lower(), detail, headers={"Connection": "close"})
            head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
            head += [name + b": " + value for name, value in answer.raw_headers]
            self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
        self.transport.close()
