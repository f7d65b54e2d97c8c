"""What comes in on a wire, for conversations that read and answer in turn."""

from __future__ import annotations

import asyncio

from shared.http.errors import HttpError


class Inbox:
    """A receiver to attach to a wire; one reader waits on it at a time."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._over = False
        self._error: HttpError | None = None
        self._news = asyncio.Event()

    async def more(self) -> bytes:
        """What has come since the last call, waiting for something; empty once the peer has ended in order.

        Raises ``TargetError`` when the connection broke and everything before that has been read.
        """
        while not self._data and not self._over:
            await self._news.wait()
            self._news.clear()
        data, self._data = bytes(self._data), bytearray()
        if not data and self._error is not None:
            raise self._error
        return data

    @property
    def waiting(self) -> int:
        """Bytes that came and were not read."""
        return len(self._data)

    # What the wire calls.

    def received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    def ended(self, error: HttpError | None) -> None:
        self._over, self._error = True, error
        self._news.set()
