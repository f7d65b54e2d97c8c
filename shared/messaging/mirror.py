"""A KV bucket as a dictionary that cannot stay silently stale."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

import structlog
from nats.errors import Error as NatsError
from nats.js.api import StreamInfo

from shared.domain.clock import Clock, SystemClock
from shared.messaging.bucket_watch import BucketWatch, WatchEndedError
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import bucket_stream
from shared.messaging.errors import MessagingError

ChangeListener = Callable[[str, bytes | None], None]

LAG_GRACE_SECONDS: Final = 3.0
_TICK_SECONDS: Final = 0.5
_RECOUNT_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Content:
    """What a bucket holds: values, and the keys that only have a delete marker left."""

    values: dict[str, bytes] = field(default_factory=dict)
    markers: set[str] = field(default_factory=set)
    revision: int = 0

    def apply(self, key: str, value: bytes | None, revision: int) -> None:
        self.revision = max(self.revision, revision)
        if value is None:
            self.values.pop(key, None)
            self.markers.add(key)
        else:
            self.values[key] = value
            self.markers.discard(key)

    @property
    def keys(self) -> int:
        """A bucket keeps one message per key, so this is comparable with its number of messages."""
        return len(self.values) + len(self.markers)

    def equals(self, info: StreamInfo) -> bool:
        """A key purged behind our back shows in the count."""
        return self.revision >= info.state.last_seq and self.keys == info.state.messages


class KeyValueMirror:
    """Follows a bucket; every change is reported to the listeners as ``(key, value)``, None for a vanished key.

    * A load counts what the server has to send, and the keys that came against those of the bucket; it replaces
      the content only when it is complete. A load that fails keeps the old content.
    * It is loaded anew after a reconnect, a gap, a silence, and when an audit (every ``audit_every`` seconds)
      finds the bucket re-created, ahead, or different in size.
    * A bucket that was re-created, or lost everything at once, is being refilled by somebody: keys missing in it
      are kept for ``grace`` seconds. A wiped bucket must not make monitors go unwatched.

    ``staleness`` is the time since the content was last known to equal the bucket.
    """

    def __init__(
        self,
        connection: NatsConnection,
        bucket: str,
        *,
        audit_every: float = 5.0,
        grace: float = 30.0,
        load_timeout: float = 15.0,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._bucket = bucket
        self._audit_every = audit_every
        self._grace = grace
        self._load_timeout = load_timeout
        self._clock = clock or SystemClock()
        self._listeners: list[ChangeListener] = []
        self._content = _Content()
        self._created: datetime | None = None
        # Keys that are not in the bucket any more, with the moment they are let go.
        self._graced: dict[str, tuple[bytes, float]] = {}
        self._outdated = asyncio.Event()
        self._reconnects = 0
        self._last_equal = float("-inf")
        self.ready = asyncio.Event()
        self.rebuilds = 0

    @property
    def data(self) -> Mapping[str, bytes]:
        """Key -> value, a live view unless keys are in their grace; do not keep it."""
        if not self._graced:
            return MappingProxyType(self._content.values)
        return MappingProxyType(
            {**{key: value for key, (value, _) in self._graced.items()}, **self._content.values}
        )

    @property
    def staleness(self) -> float:
        """Seconds since the mirror was last known to equal the bucket; infinite before the first load."""
        return self._clock.monotonic() - self._last_equal

    def add_listener(self, listener: ChangeListener) -> None:
        """Report every later change to ``listener``, on the event loop."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow the bucket until cancelled."""
        forget_listener = self._connection.add_reconnect_listener(self._outdated.set)
        try:
            while not is_cancelled():
                if not self._connection.is_connected:
                    await self._is_outdated_within(1.0)
                    continue
                try:
                    await self._follow()
                except (NatsError, MessagingError, OSError) as error:
                    _log.warning("mirror is loaded anew", bucket=self._bucket, reason=str(error) or describe(error))
                    await asyncio.sleep(_TICK_SECONDS)
        finally:
            forget_listener()

    async def _follow(self) -> None:
        self._outdated.clear()
        info = await self._connection.js.stream_info(bucket_stream(self._bucket))
        fresh = _Content()
        watch = BucketWatch(self._connection, self._bucket, self._clock, fresh.apply)
        try:
            async with asyncio.timeout(self._load_timeout):
                await watch.load()
                await self._until_all_keys_came(watch, fresh, info)
            # No await between the two: no change can fall in between.
            self._replace(fresh, info)
            watch.take = self._change
            await self._audit(watch)
        finally:
            await watch.close()

    async def _until_all_keys_came(self, watch: BucketWatch, fresh: _Content, before: StreamInfo) -> None:
        """Under writes the server says now and then that nothing is pending while keys are still to come.

        Keys that were there before and still are must have come; raises ``WatchEndedError`` for another bucket.
        """
        while fresh.keys < before.state.messages:
            info = await self._connection.js.stream_info(bucket_stream(self._bucket))
            if info.created != before.created:
                raise WatchEndedError("the bucket was re-created")
            if fresh.keys >= info.state.messages:
                return  # keys vanished meanwhile
            watch.check()
            await asyncio.sleep(_RECOUNT_SECONDS)

    def _replace(self, fresh: _Content, info: StreamInfo) -> None:
        """Take the new content over and report the differences."""
        fresh.revision = max(fresh.revision, info.state.last_seq)  # a purged tail must not look like a lag
        old = self.data
        was_wiped = self._created not in {None, info.created} or not fresh.values
        until = self._clock.monotonic() + self._grace
        vanished = [key for key in old if key not in fresh.values and key not in fresh.markers]
        if was_wiped:
            kept = {key: (old[key], until) for key in vanished}
        else:
            kept = {key: self._graced[key] for key in vanished if key in self._graced}
        if not fresh.values:
            is_new = self._created is None and not info.state.last_seq  # of a new installation: nothing is amiss
            log = _log.info if is_new else _log.error
            log("bucket reads as empty", bucket=self._bucket, keys_kept=len(kept), grace_seconds=self._grace)
        before = dict(old)
        self._content, self._graced, self._created = fresh, kept, info.created
        self.rebuilds += 1
        self._last_equal = self._clock.monotonic()
        self.ready.set()
        self._report_differences(before)

    def _report_differences(self, before: Mapping[str, bytes]) -> None:
        after = self.data
        for key in before:
            if key not in after:
                self._report(key, None)
        for key, value in after.items():
            if before.get(key) != value:
                self._report(key, value)

    def _change(self, key: str, value: bytes | None, revision: int) -> None:
        kept, _ = self._graced.pop(key, (None, 0.0))
        known = self._content.values.get(key, kept)
        self._content.apply(key, value, revision)
        if value != known:
            self._report(key, value)

    def _report(self, key: str, value: bytes | None) -> None:
        for listener in self._listeners:
            listener(key, value)

    async def _audit(self, watch: BucketWatch) -> None:
        """Return when the mirror has to be loaded anew; raises ``WatchEndedError``, ``nats.errors.Error``."""
        next_audit = self._clock.monotonic() + self._audit_every
        different_since: float | None = None
        while not (is_cancelled() or await self._is_outdated_within(_TICK_SECONDS)):
            watch.check()
            self._let_go()
            now = self._clock.monotonic()
            if now < next_audit and different_since is None:
                continue
            next_audit = now + self._audit_every
            info = await self._connection.js.stream_info(bucket_stream(self._bucket))
            if info.created != self._created:
                raise WatchEndedError("the bucket was re-created")
            if self._content.equals(info):
                different_since, self._last_equal = None, self._clock.monotonic()
            elif now - (different_since := different_since or now) > LAG_GRACE_SECONDS:
                raise WatchEndedError(
                    f"at revision {self._content.revision}, the bucket at {info.state.last_seq}"
                    f" with {info.state.messages} keys"
                )

    async def _is_outdated_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._outdated.wait()
        except TimeoutError:
            return False

    def _let_go(self) -> None:
        """Report the keys whose grace has run out as vanished."""
        now = self._clock.monotonic()
        expired: Iterable[str] = [key for key, (_, until) in self._graced.items() if until <= now]
        for key in expired:
            del self._graced[key]
            _log.warning("key did not come back to its bucket", bucket=self._bucket, key=key)
            self._report(key, None)
