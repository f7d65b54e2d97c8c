"""A KV key that one owner holds for a time to live: written by compare-and-set, deleted only by its owner.

What a lease or a lock means is the business of those who use it; here is what is stored, and by whom.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nats.js.errors import APIError, NotFoundError

from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject

EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
OPERATION: Final = "KV-Operation"
_EXPIRY_MARKER: Final = "Nats-Marker-Reason"
WRONG_SEQUENCE: Final = (10071, 10164)
_NO_STREAM: Final = 10059


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The key's last message: the sequence that the next write has to expect, and whose it is."""

    sequence: int
    owner: str | None


class OwnedKey:
    """``owner`` is a name that nobody else has; ``ensure`` re-creates the bucket when it is gone.

    Each call raises ``nats.errors.Error`` when the server does not answer in ``timeout`` seconds.
    """

    def __init__(
        self,
        connection: NatsConnection,
        bucket: str,
        key: str,
        owner: str,
        *,
        ensure: Callable[[], Awaitable[None]],
        timeout: float,
    ) -> None:
        self._connection, self._ensure, self._timeout = connection, ensure, timeout
        self._stream = bucket_stream(bucket)
        self.subject = bucket_subject(bucket, key)
        self.owner = owner
        self.revision = 0

    async def read(self) -> KeyRecord:
        """From the stream's leader: a direct read may be served by a replica that lags behind."""
        try:
            message = await self._connection.js.get_last_msg(self._stream, self.subject)
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                await self._ensure()
            return KeyRecord(0, None)
        headers = message.headers or {}
        # A release leaves an operation, an expiry the server's own marker: the sequence of either one counts.
        is_vacant = OPERATION in headers or _EXPIRY_MARKER in headers
        return KeyRecord(message.seq or 0, None if is_vacant else (message.data or b"").decode())

    async def write(self, expected: int, ttl: float) -> bool:
        """Own the key for ``ttl`` whole seconds if its last sequence is ``expected``; False: another was faster."""
        try:
            self.revision = await self._publish(self.owner.encode(), {EXPECTED_SEQUENCE: str(expected)}, ttl)
        except APIError as error:
            if error.err_code in WRONG_SEQUENCE:
                return False
            raise
        return True

    async def delete(self) -> None:
        """Give the key up if it is ours, also when the answer to our last write was lost."""
        for _ in range(2):
            try:
                await self._publish(b"", {EXPECTED_SEQUENCE: str(self.revision), OPERATION: "DEL"}, None)
                return
            except APIError as error:
                if error.err_code not in WRONG_SEQUENCE:
                    raise
            record = await self.read()
            if record.owner != self.owner:
                return
            self.revision = record.sequence

    async def _publish(self, payload: bytes, headers: dict[str, str], ttl: float | None) -> int:
        acknowledged = await self._connection.js.publish(
            self.subject, payload, timeout=self._timeout, headers=headers, msg_ttl=ttl
        )
        return int(acknowledged.seq)
