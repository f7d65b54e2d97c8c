"""Leader election on one KV key: a lease with a time to live, renewed by compare-and-set.

The safety of the election is in ``holds``, which a leader reads before every single publish: it compares the
monotonic clock with the end of the lease, counted from before the last renewal was sent. A process that was
frozen past its lease finds ``holds`` false before it can send anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.contracts.names import LEADER_BUCKET, LEADER_KEY
from shared.domain.clock import Clock, SystemClock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.errors import MessagingError
from shared.messaging.owned_key import OPERATION, KeyRecord, OwnedKey

LeaderListener = Callable[[bool, str], None]

_RETRY_SECONDS: Final = 0.2
_REQUEST_SECONDS: Final = 1.0
# The announcement of a release can overtake its storing.
_SETTLE_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


class LeaderElection:
    """Keeps trying to lead, and leads, while ``run`` runs; cancelling ``run`` releases the lease.

    Times in seconds: ``ttl`` is whole (the server counts whole seconds); a standby asks every ``poll``. ``ensure``
    re-creates the bucket when it is gone. ``epoch`` is the revision at which the lease was last acquired and grows
    from leader to leader. ``established`` is set while it is known who leads: this process or another. Listeners
    are called with ``(leads, reason)`` on the event loop.
    """

    def __init__(
        self,
        connection: NatsConnection,
        name: str,
        *,
        ensure: Callable[[], Awaitable[None]],
        bucket: str = LEADER_BUCKET,
        key: str = LEADER_KEY,
        ttl: int = 5,
        beat: float = 1.75,
        poll: float = 0.5,
        margin: float = 0.5,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        # Two processes of one name must not take each other's lease for their own.
        self.owner = f"{name}-{uuid4().hex[:12]}"
        self._key = OwnedKey(connection, bucket, key, self.owner, ensure=ensure, timeout=_REQUEST_SECONDS)
        self._ttl = ttl
        self._beat = beat
        self._poll = poll
        self._margin = margin
        self._clock = clock or SystemClock()
        self._listeners: list[LeaderListener] = []
        self._leads = False
        self._valid_until = 0.0
        self._vacated = asyncio.Event()
        self.established = asyncio.Event()
        self.epoch = 0
        self.changes = 0

    @property
    def holds(self) -> bool:
        """Whether this process may publish as the leader now. Read it before every publish."""
        return self._leads and self._clock.monotonic() < self._valid_until

    def add_listener(self, listener: LeaderListener) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Compete, lead, compete again until cancelled; then release.

        Raises ``nats.errors.Error`` only when the connection is closed.
        """
        announcements = await self._connection.client.subscribe(self._key.subject, cb=self._on_announcement)
        try:
            while not is_cancelled():
                await self._step()
        finally:
            # The renewal has ended by now: one in flight would make the compare-and-set of the release fail.
            await self._release()
            if not self._connection.is_closed:
                await announcements.unsubscribe()

    async def _step(self) -> None:
        try:
            if self._leads:
                await self._renew()
            else:
                await self._compete()
        except (NatsError, MessagingError, OSError) as error:
            if self._connection.is_closed:
                raise
            _log.info("leader election is interrupted", error=describe(error), leads=self._leads)
            if not self.holds:
                self._lose_sight()
            await asyncio.sleep(_RETRY_SECONDS)

    def _lose_sight(self) -> None:
        if self._leads:
            self._become(leads=False, reason="lease ran out")
        self.established.clear()

    async def _renew(self) -> None:
        if await self._write(self._key.revision):
            await self._wait_for_vacancy(self._beat)
            return
        record = await self._read()
        if record.owner == self.owner:
            self._key.revision = record.sequence  # an earlier write of ours was stored and its answer lost
        else:
            self._become(leads=False, reason="lease taken over" if record.owner else "lease vanished")

    async def _compete(self) -> None:
        record = await self._read()
        is_adopted = record.owner == self.owner
        if record.owner is not None and not is_adopted:
            self.established.set()
            if await self._wait_for_vacancy(self._poll):
                await asyncio.sleep(_SETTLE_SECONDS)
            self._vacated.clear()
        elif await self._write(record.sequence):
            self.epoch = self.epoch if is_adopted else self._key.revision
            self._become(leads=True, reason="lease found again" if is_adopted else "lease acquired")
            await self._wait_for_vacancy(self._beat)

    async def _write(self, expected: int) -> bool:
        """Write the lease if ``expected`` is still the key's last sequence; False when somebody was faster."""
        self._vacated.clear()
        sent_at = self._clock.monotonic()
        if not await self._key.write(expected, self._ttl):
            return False
        if not self._vacated.is_set():
            self._valid_until = sent_at + self._ttl - self._margin
        return True

    async def _read(self) -> KeyRecord:
        async with asyncio.timeout(_REQUEST_SECONDS):
            return await self._key.read()

    async def _release(self) -> None:
        if not self._leads:
            return
        self._become(leads=False, reason="released")
        try:
            await self._key.delete()
            _log.info("leadership released", owner=self.owner)
        except (NatsError, OSError) as error:
            _log.warning("leadership not released, it runs out by itself", error=describe(error), seconds=self._ttl)

    def _become(self, *, leads: bool, reason: str) -> None:
        self._leads = leads
        self.changes += 1
        if leads:
            self.established.set()
        _log.info("leadership changed", leads=leads, reason=reason, owner=self.owner, epoch=self.epoch)
        for listener in self._listeners:
            listener(leads, reason)

    async def _wait_for_vacancy(self, seconds: float) -> bool:
        """True as soon as a deletion of the key is announced; an expiry is not, so False means: look."""
        if is_cancelled():
            return False
        try:
            async with asyncio.timeout(seconds):
                return await self._vacated.wait()
        except TimeoutError:
            return False

    async def _on_announcement(self, message: Msg) -> None:
        if message.headers and OPERATION in message.headers:
            # Whoever deleted it, a standby may hold the lease within milliseconds: stop before it does.
            self._valid_until = 0.0
            self._vacated.set()
