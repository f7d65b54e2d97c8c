"""The watchdog: looks at the installation from the API process and says aloud what is not being done.

Its looks are driven by a beat that JetStream itself makes (a server-side schedule), not by our schedulers; should
that beat stop, the watchdog notices by its own clock and says so.
"""

from __future__ import annotations

import asyncio

import structlog
from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError

from shared.db.session import Database
from shared.domain.clock import Clock
from shared.domain.errors import MissedReason
from shared.domain.watchdog import LATE_BEAT_MS, Memory, Sight, judge
from shared.messaging.beat import ensure_beat
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import MessagingError
from shared.observability import metrics
from shared.services.sight import look

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
REPEAT_SECONDS = 60.0


class Watchdog:
    """``alarms`` holds, by part of the work, what is not being done right now.

    ``looked_at`` is the monotonic time of the last look, null before the first.
    """

    def __init__(self, database: Database, connection: NatsConnection, clock: Clock) -> None:
        self._database, self._connection, self._clock = database, connection, clock
        self._memory = Memory()
        self._beat_declared = float("-inf")
        self._told: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self.alarms: dict[str, str] = {}
        self.looked_at: float | None = None

    def reasons(self) -> dict[str, MissedReason]:
        """By region, why a slot was lost there, as far as it can be seen from here."""
        return dict.fromkeys(self._memory.deaf_since, MissedReason.WORKER_GAP)

    def lasting(self, seconds: float) -> dict[str, str]:
        """The alarms that have lasted so long: what ends by itself within a look or two need not wake anybody."""
        now = self._clock.monotonic()
        return {part: problem for part, problem in self.alarms.items() if now - self._since[part] >= seconds}

    async def run(self) -> None:
        """Look every five seconds, until cancelled."""
        while not is_cancelled():
            try:
                self._tell(judge(await self._look(), self._memory))
            except (SQLAlchemyError, NatsError, MessagingError, OSError) as error:
                self._tell(
                    {"watchdog": f"it can't see: {str(error).partition(chr(10))[0] or type(error).__name__}"}
                )
            self.looked_at = self._clock.monotonic()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> Sight:
        sight = await look(self._database, self._connection, self._clock)
        metrics.monitors_blind.set(sight.blind_monitors)
        for stream, depth in sight.streams.items():
            age_ms = 0 if depth.oldest_ms is None else max(0, sight.now_ms - depth.oldest_ms)
            metrics.queue_pending.labels(stream).set(depth.messages)
            metrics.queue_oldest.labels(stream).set(age_ms / 1000)
        await self._keep_beat_going(sight.beat_ms)
        return sight

    async def _keep_beat_going(self, beat_ms: int | None) -> None:
        """Declare the beat when it is missing, and not again before it had time to come: that would reset it."""
        is_late = beat_ms is None or self._clock.now_ms() - beat_ms > LATE_BEAT_MS
        if is_late and self._clock.monotonic() - self._beat_declared > LATE_BEAT_MS / 1000:
            self._beat_declared = self._clock.monotonic()
            await ensure_beat(self._connection)

    def _tell(self, verdicts: dict[str, str | None]) -> None:
        """Metrics at once; a line when an alarm begins, every minute while it lasts, and when it ends."""
        now = self._clock.monotonic()
        for part in self.alarms.keys() | verdicts.keys():
            problem = verdicts.get(part)
            metrics.watchdog_alarm.labels(part).set(problem is not None)
            if problem is None:
                if self.alarms.pop(part, None):
                    del self._told[part], self._since[part]
                    log.info("watchdog: mended", part=part)
                continue
            self.alarms[part] = problem
            self._since.setdefault(part, now)
            if now - self._told.get(part, float("-inf")) >= REPEAT_SECONDS:
                self._told[part] = now
                log.error("watchdog", part=part, problem=problem)
