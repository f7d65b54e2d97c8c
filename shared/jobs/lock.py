"""A lock on one KV key that its holder renews, and that ends by itself when the holder is gone.

Mutual exclusion of *writes* is not its business: a holder that was frozen does not know that it lost the lock. That
is what the fence in PostgreSQL is for, which also outlives a bucket that is deleted and counts from one again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from nats.errors import Error as NatsError

from shared.contracts.names import LOCKS_BUCKET
from shared.domain.clock import Clock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.owned_key import OwnedKey

_REQUEST_SECONDS: Final = 2.0
_LONGEST_MARGIN_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5

_log = structlog.get_logger(__name__)


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
        self._key = OwnedKey(connection, LOCKS_BUCKET, key, owner, ensure=ensure, timeout=_REQUEST_SECONDS)
        self._job, self._ttl, self._clock = key, ttl, clock
        self._was_written = False
        self._valid_until = float("-inf")

    def holds(self) -> bool:
        """Whether the lock is ours now, by the monotonic clock: false after a freeze longer than its life."""
        return self._clock.monotonic() < self._valid_until

    async def acquire(self) -> bool:
        """False when another run holds it; raises ``nats.errors.Error`` and ``MessagingError``."""
        for _ in range(2):  # the second time for somebody who was faster and is gone already
            record = await self._key.read()
            if record.owner == self._key.owner:  # our write was stored and its answer lost
                return await self._write(record.sequence)
            if record.owner is not None:
                return False
            if await self._write(record.sequence):
                return True
        return False

    async def keep(self) -> None:
        """Renew the lock until cancelled, or until it is lost."""
        while not is_cancelled():
            await asyncio.sleep(self._ttl / 3 if self.holds() else _RETRY_SECONDS)
            try:
                if not await self._renew():
                    self._valid_until = float("-inf")
                    _log.error("the lock of a job is lost", job=self._job)
                    return
            except (NatsError, OSError) as error:
                _log.warning("the lock of a job could not be renewed", job=self._job, error=describe(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def release(self) -> None:
        """Give the lock back at once if it is ours; where that fails it ends by itself."""
        self._valid_until = float("-inf")
        if not self._was_written:
            return
        try:
            await self._key.delete()
        except (NatsError, OSError) as error:
            _log.warning(
                "the lock of a job is not released, it ends by itself", job=self._job, error=describe(error)
            )

    async def _renew(self) -> bool:
        if await self._write(self._key.revision):
            return True
        record = await self._key.read()
        # An earlier renewal of ours may have been stored and its answer lost.
        return record.owner == self._key.owner and await self._write(record.sequence)

    async def _write(self, expected: int) -> bool:
        """Write the lock if the key is as we know it; False when somebody was faster."""
        sent_at = self._clock.monotonic()
        self._was_written = True
        if not await self._key.write(expected, self._ttl):
            return False
        self._valid_until = sent_at + self._ttl - min(_LONGEST_MARGIN_SECONDS, self._ttl / 4)
        return True
