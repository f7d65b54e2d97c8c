"""Leader election on one KV key: a lease with a time to live, renewed by compare-and-set.

The safety of the election is in ``holds``, which a leader reads before every single publish: it compares the
monotonic clock with the end of the lease, counted from before the last renewal was sent. A process that was
frozen past its lease finds ``holds`` false before it can send anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from shared.contracts.names import LEADER_BUCKET, LEADER_KEY
from shared.domain.clock import Clock, SystemClock
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.errors import MessagingError

LeaderListener = Callable[[bool, str], None]

_EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
_OPERATION: Final = "KV-Operation"
_EXPIRY_MARKER: Final = "Nats-Marker-Reason"
_WRONG_SEQUENCE: Final = (10071, 10164)
_NO_STREAM: Final = 10059
_RETRY_SECONDS: Final = 0.2
# The announcement of a release can overtake its storing.
_SETTLE_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Record:
    """The key's last message: the sequence that the next write has to expect, and whose lease it is."""

    sequence: int
    owner: str | None


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
        self._stream = bucket_stream(bucket)
        self._subject = bucket_subject(bucket, key)
        self._ensure = ensure
        self._ttl = ttl
        self._beat = beat
        self._poll = poll
        self._margin = margin
        self._clock = clock or SystemClock()
        self._listeners: list[LeaderListener] = []
        self._leads = False
        self._revision = 0
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
        announcements = await self._connection.client.subscribe(self._subject, cb=self._on_announcement)
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
        if await self._write(self._revision):
            await self._wait_for_vacancy(self._beat)
            return
        record = await self._read()
        if record.owner == self.owner:
            self._revision = record.sequence  # an earlier write of ours was stored and its answer lost
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
            self.epoch = self.epoch if is_adopted else self._revision
            self._become(leads=True, reason="lease found again" if is_adopted else "lease acquired")
            await self._wait_for_vacancy(self._beat)

    async def _write(self, expected: int) -> bool:
        """Write the lease if ``expected`` is still the key's last sequence; False when somebody was faster."""
        self._vacated.clear()
        sent_at = self._clock.monotonic()
        try:
            acknowledged = await self._connection.js.publish(
                self._subject,
                self.owner.encode(),
                timeout=1.0,
                headers={_EXPECTED_SEQUENCE: str(expected)},
                msg_ttl=self._ttl,
            )
        except APIError as error:
            if error.err_code in _WRONG_SEQUENCE:
                return False
            raise
        self._revision = acknowledged.seq
        if not self._vacated.is_set():
            self._valid_until = sent_at + self._ttl - self._margin
        return True

    async def _read(self) -> _Record:
        """From the stream's leader: a direct read may be served by a replica that lags behind."""
        try:
            async with asyncio.timeout(1.0):
                message = await self._connection.js.get_last_msg(self._stream, self._subject)
        except NotFoundError as error:
            if error.err_code == _NO_STREAM:
                await self._ensure()
            return _Record(0, None)
        headers = message.headers or {}
        # A release leaves an operation, an expiry the server's own marker: the sequence of either one counts.
        is_vacant = _OPERATION in headers or _EXPIRY_MARKER in headers
        return _Record(message.seq or 0, None if is_vacant else (message.data or b"").decode())

    async def _release(self) -> None:
        if not self._leads:
            return
        self._become(leads=False, reason="released")
        try:
            await self._delete_own()
            _log.info("leadership released", owner=self.owner)
        except (NatsError, OSError) as error:
            _log.warning("leadership not released, it runs out by itself", error=describe(error), seconds=self._ttl)

    async def _delete_own(self) -> None:
        for _ in range(2):
            try:
                await self._connection.js.publish(
                    self._subject,
                    timeout=1.0,
                    headers={_EXPECTED_SEQUENCE: str(self._revision), _OPERATION: "DEL"},
                )
                return
            except APIError as error:
                if error.err_code not in _WRONG_SEQUENCE:
                    raise
            record = await self._read()  # a renewal that was cancelled may have been stored
            if record.owner != self.owner:
                return
            self._revision = record.sequence

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
        if message.headers and _OPERATION in message.headers:
            # Whoever deleted it, a standby may hold the lease within milliseconds: stop before it does.
            self._valid_until = 0.0
            self._vacated.set()
