"""A lock on one KV key that its holder renews, and that ends by itself when the holder is gone.

Mutual exclusion of *writes* is not its business: a holder that was frozen does not know that it lost the lock. That
is what the fence in PostgreSQL is for, which also outlives a bucket that is deleted and counts from one again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from shared.contracts.names import LOCKS_BUCKET
from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import bucket_stream, bucket_subject

_EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
_OPERATION: Final = "KV-Operation"
_EXPIRY_MARKER: Final = "Nats-Marker-Reason"
_WRONG_SEQUENCE: Final = (10071, 10164)
_NO_STREAM: Final = 10059
_REQUEST_SECONDS: Final = 2.0
_LONGEST_MARGIN_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Record:
    """The key's last message: the sequence that the next write has to expect, and whose lock it is."""

    sequence: int
    owner: str | None


class JobLock:
    """One acquisition of the lock of ``key`` by ``owner``, a name that no other acquisition has.

    ``ttl`` in whole seconds. ``ensure`` re-creates the bucket when it is gone.
    """

    def __init__(
        self,
        connection: NatsConnection,
        key: str,
        owner: str,
        *,
        ttl: int,
        ensure: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._connection, self._ensure, self._clock = connection, ensure, clock
        self._stream, self._subject = bucket_stream(LOCKS_BUCKET), bucket_subject(LOCKS_BUCKET, key)
        self._key, self._owner, self._ttl = key, owner, ttl
        self._revision = 0
        self._was_written = False
        self._valid_until = float("-inf")

    def holds(self) -> bool:
        """Whether the lock is ours now, by the monotonic clock: false after a freeze longer than its life."""
        return self._clock.monotonic() < self._valid_until

    async def acquire(self) -> bool:
        """False when another run holds it; raises ``nats.errors.Error`` and ``MessagingError``."""
        for _ in range(2):  # the second time for somebody who was faster and is gone already
            record = await self._read()
            if record.owner == self._owner:  # our write was stored and its answer lost
                self._revision = record.sequence
                return await self._write()
            if record.owner is not None:
                return False
            self._revision = record.sequence
            if await self._write():
                return True
        return False

    async def keep(self) -> None:
        """Renew the lock until cancelled, or until it is lost."""
        while not is_cancelled():
            await asyncio.sleep(self._ttl / 3 if self.holds() else _RETRY_SECONDS)
            try:
                if not await self._renew():
                    self._valid_until = float("-inf")
                    _log.error("the lock of a job is lost", job=self._key)
                    return
            except (NatsError, OSError) as error:
                _log.warning("the lock of a job could not be renewed", job=self._key, error=describe(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def release(self) -> None:
        """Give the lock back at once if it is ours; where that fails it ends by itself."""
        self._valid_until = float("-inf")
        if not self._was_written:
            return
        try:
            await self._delete_own()
        except (NatsError, OSError) as error:
            _log.warning(
                "the lock of a job is not released, it ends by itself", job=self._key, error=describe(error)
            )

    async def _delete_own(self) -> None:
        for _ in range(2):
            try:
                await self._publish(b"", {_OPERATION: "DEL"})
                return
            except APIError as error:
                if error.err_code not in _WRONG_SEQUENCE:
                    raise
            record = await self._read()  # a write of ours may have been stored and its answer lost
            if record.owner != self._owner:
                return
            self._revision = record.sequence

    async def _renew(self) -> bool:
        if await self._write():
            return True
        record = await self._read()
        if record.owner != self._owner:
            return False
        self._revision = record.sequence  # an earlier renewal of ours was stored and its answer lost
        return await self._write()

    async def _write(self) -> bool:
        """Write the lock if the key is as we know it; False when somebody was faster."""
        sent_at = self._clock.monotonic()
        self._was_written = True
        try:
            self._revision = await self._publish(self._owner.encode(), {}, ttl=self._ttl)
        except APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                return False
            raise
        self._valid_until = sent_at + self._ttl - min(_LONGEST_MARGIN_SECONDS, self._ttl / 4)
        return True

    async def _publish(self, payload: bytes, headers: dict[str, str], ttl: float | None = None) -> int:
        acknowledged = await self._connection.js.publish(
            self._subject,
            payload,
            timeout=_REQUEST_SECONDS,
            headers={_EXPECTED_SEQUENCE: str(self._revision), **headers},
            msg_ttl=ttl,
        )
        return int(acknowledged.seq)

    async def _read(self) -> _Record:
        try:
            message = await self._connection.js.get_last_msg(self._stream, self._subject)
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                await self._ensure()
            return _Record(0, None)
        headers = message.headers or {}
        is_vacant = _OPERATION in headers or _EXPIRY_MARKER in headers
        return _Record(message.seq or 0, None if is_vacant else (message.data or b"").decode())
