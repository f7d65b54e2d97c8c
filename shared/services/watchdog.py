"""The watchdog: looks at the installation from the API process and says aloud what is not being done.

Its looks are driven by a beat that JetStream itself makes (a server-side schedule), not by our schedulers; should
that beat stop, the watchdog notices by its own clock and says so.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
import structlog
from nats.errors import Error as NatsError
from nats.js.api import ConsumerInfo, RawStreamMsg
from nats.js.errors import NotFoundError
from sqlalchemy.exc import SQLAlchemyError

from shared.contracts import names
from shared.contracts.wire import Progress
from shared.db.repositories.watch import active_regions, monitors_in_sight
from shared.db.session import Database
from shared.domain.clock import Clock, to_milliseconds
from shared.domain.errors import MissedReason
from shared.domain.watchdog import LATE_BEAT_MS, Depth, Memory, Reader, Sight, judge
from shared.messaging.beat import ensure_beat
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import MessagingError
from shared.messaging.stream_state import StreamContent, stream_state
from shared.messaging.streams import bucket_stream, bucket_subject
from shared.observability import metrics

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
REPEAT_SECONDS = 60.0


class Watchdog:
    """``alarms`` holds, by part of the work, what is not being done right now."""

    def __init__(self, database: Database, connection: NatsConnection, clock: Clock) -> None:
        self._database, self._connection, self._clock = database, connection, clock
        self._memory = Memory()
        self._beat_declared = float("-inf")
        self._told: dict[str, float] = {}
        self.alarms: dict[str, str] = {}

    def reasons(self) -> dict[str, MissedReason]:
        """By region, why a slot was lost there, as far as it can be seen from here."""
        return dict.fromkeys(self._memory.deaf_since, MissedReason.WORKER_GAP)

    async def run(self) -> None:
        """Look every five seconds, until cancelled."""
        while not is_cancelled():
            try:
                self._tell(judge(await self._look(), self._memory))
            except (SQLAlchemyError, NatsError, MessagingError, OSError) as error:
                self._tell(
                    {"watchdog": f"it can't see: {str(error).partition(chr(10))[0] or type(error).__name__}"}
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> Sight:
        async with self._database.system() as session:
            active, blind = await monitors_in_sight(session)
            regions = await active_regions(session)
        metrics.monitors_blind.set(blind)
        progress = await self._last(bucket_stream(names.PROGRESS_BUCKET), _WATERMARK)
        beat = await self._last(names.BEATS_STREAM, names.BEAT_SUBJECT)
        await self._keep_beat_going(_stored_ms(beat))
        return Sight(
            now_ms=self._clock.now_ms(),
            planned_until_ms=_planned_until(progress),
            beat_ms=_stored_ms(beat),
            streams={name: await self._depth(name) for name in (names.CHECKS_STREAM, names.RESULTS_STREAM)},
            readers={region: await self._reader(region) for region in regions},
            active_monitors=active,
            blind_monitors=blind,
        )

    async def _keep_beat_going(self, beat_ms: int | None) -> None:
        """Declare the beat when it is missing, and not again before it had time to come: that would reset it."""
        is_late = beat_ms is None or self._clock.now_ms() - beat_ms > LATE_BEAT_MS
        if is_late and self._clock.monotonic() - self._beat_declared > LATE_BEAT_MS / 1000:
            self._beat_declared = self._clock.monotonic()
            await ensure_beat(self._connection)

    async def _last(self, stream: str, subject: str) -> RawStreamMsg | None:
        try:
            return await self._connection.js.get_last_msg(stream, subject)
        except NotFoundError:
            return None

    async def _depth(self, stream: str) -> Depth:
        state = (await stream_state(self._connection, stream)).state or _EMPTY
        oldest = _moment_ms(state.first_ts) if state.messages else None
        age = 0.0 if oldest is None else max(0.0, (self._clock.now_ms() - oldest) / 1000)
        metrics.queue_pending.labels(stream).set(state.messages)
        metrics.queue_oldest.labels(stream).set(age)
        return Depth(state.messages, oldest)

    async def _reader(self, region: str) -> Reader | None:
        try:
            info: ConsumerInfo = await self._connection.js.consumer_info(
                names.CHECKS_STREAM, names.worker_consumer(region)
            )
        except NotFoundError:
            return None
        delivered = info.delivered.consumer_seq if info.delivered else 0
        return Reader(info.num_pending or 0, delivered, info.num_redelivered or 0)

    def _tell(self, verdicts: dict[str, str | None]) -> None:
        """Metrics at once; a line when an alarm begins, every minute while it lasts, and when it ends."""
        now = self._clock.monotonic()
        for part in self.alarms.keys() | verdicts.keys():
            problem = verdicts.get(part)
            metrics.watchdog_alarm.labels(part).set(problem is not None)
            if problem is None:
                if self.alarms.pop(part, None):
                    del self._told[part]
                    log.info("watchdog: mended", part=part)
                continue
            self.alarms[part] = problem
            if now - self._told.get(part, float("-inf")) >= REPEAT_SECONDS:
                self._told[part] = now
                log.error("watchdog", part=part, problem=problem)


_EMPTY = StreamContent()
_WATERMARK = bucket_subject(names.PROGRESS_BUCKET, names.WATERMARK_KEY)


def _planned_until(message: RawStreamMsg | None) -> int | None:
    if message is None:
        return None
    try:
        return msgspec.json.decode(message.data or b"", type=Progress).planned_until_ms
    except msgspec.DecodeError:
        return None


def _stored_ms(message: RawStreamMsg | None) -> int | None:
    return _moment_ms(message.time) if message else None


def _moment_ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_milliseconds(moment)
