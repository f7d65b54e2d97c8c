"""One delivery in a worker: claim the row, send, record what came of it.

The row in PostgreSQL is the truth, not the message that brought its id: a second message finds it claimed or
settled. A worker that dies between claiming and recording leaves a claim that runs out; whoever takes it then sends
again, under the same id, and marks the delivery as possibly duplicated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.channels.deliver import deliver
from shared.channels.errors import ChannelError, PermanentError, TemporaryError
from shared.channels.record import Outgoing, Receipt, Tools
from shared.channels.registry import configuration
from shared.contracts.names import DELIVER_NOTIFICATION_TASK
from shared.contracts.sealing import Sealer, SealingError
from shared.db.models import Channel, Delivery
from shared.db.repositories import channels, deliveries
from shared.db.repositories.deliveries import Outcome, Queued
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime, to_milliseconds
from shared.domain.notification_retry import SENDING_MS, is_too_late, wait_seconds
from shared.domain.spec import Strict
from shared.observability import metrics
from shared.services.notifications import dedupe_key, is_follow_up, notification_from, words_for
from shared.tasks.declaration import TaskContext, TaskSet
from shared.tasks.errors import GiveUp, RetryLater
from shared.tasks.policy import RetryPolicy
from shared.tasks.queue import TaskQueue

log = structlog.get_logger(__name__)

CLAIM = timedelta(milliseconds=SENDING_MS)
AGAIN = timedelta(seconds=120)
"""Beyond the time of the next attempt: when the queue has lost that, the relay hands the delivery over again."""
BLOCKED = timedelta(seconds=30)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 4.0


class DeliveryOrder(msgspec.Struct, frozen=True):
    """The argument of the task: the delivery itself lies in PostgreSQL."""

    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class _Claimed:
    """An attempt that is ours. ``problem`` is set when it cannot be made."""

    row: Delivery
    channel: Channel
    config: Strict | None
    problem: str | None = None


class Notifier:
    """Delivers notifications; ``jitter`` gives numbers from -1 to 1."""

    def __init__(
        self,
        database: Database,
        sealer: Sealer,
        tools: Tools,
        clock: Clock,
        jitter: Callable[[], float] = lambda: random.uniform(-1, 1),  # noqa: S311 spreads retries, hides nothing
    ) -> None:
        self._database, self._sealer, self._tools, self._clock = database, sealer, tools, clock
        self._jitter = jitter

    async def deliver(self, delivery_id: UUID, *, is_replay: bool = False) -> None:
        """Make one attempt; raises ``RetryLater`` when another is due and ``GiveUp`` when none will help.

        What failed for good is sent again only as a replay: the queue may hold a delivery more than once.
        """
        claimed = await self._claim(delivery_id, is_replay=is_replay)
        if claimed is None:
            return
        outcome, asked = await self._attempt(claimed)
        wait = None
        if outcome.state == "retrying":
            wait = wait_seconds(claimed.row.attempts, asked, self._jitter())
            if is_too_late(to_milliseconds(claimed.row.created_at), self._clock.now_ms() + round(wait * 1000)):
                outcome, wait = replace(outcome, state="failed"), None
        await self._record(claimed, outcome, wait)
        if wait is not None:
            raise RetryLater(outcome.error or "", after=wait)
        if outcome.state == "failed":
            raise GiveUp(outcome.error or "")

    async def _claim(self, delivery_id: UUID, *, is_replay: bool) -> _Claimed | None:
        now = self._now()
        async with self._database.system() as session:
            row = await deliveries.lock(session, delivery_id)
            if row is None:
                log.error("a delivery is not there", delivery=str(delivery_id))
                return None
            if (until := await self._unready_until(session, row, now)) is not None:
                await deliveries.postpone(session, row.id, until)
                return None
            if row.state in {"delivered", "skipped"}:
                return None
            if row.state == "failed" and not is_replay:
                raise GiveUp(row.error or "it failed for good")
            channel = await channels.get(session, row.channel_id)
            if channel is None:
                await self._skip(session, row, None, "the channel was deleted", now)
                return None
            if is_follow_up(row) and not await deliveries.was_told(session, row):
                await self._skip(session, row, channel, "the channel was not told of the opening", now)
                return None
            await deliveries.claim(session, row.id, now, now + CLAIM + AGAIN)
            await session.refresh(row)
            return self._opened(row, channel)

    async def _unready_until(self, session: AsyncSession, row: Delivery, now: datetime) -> datetime | None:
        """When to come again for a row that cannot be sent now."""
        if row.settled_at is not None:
            return None
        if row.state == "sending" and row.claimed_at is not None:
            free_at = row.claimed_at + CLAIM
            return free_at if free_at > now else None
        if row.not_before is not None and row.not_before > now:
            return row.not_before
        if row.incident_id is not None and await deliveries.has_unsettled_before(session, row):
            return now + BLOCKED  # whatever settles first calls this one
        return None

    def _opened(self, row: Delivery, channel: Channel) -> _Claimed:
        try:
            return _Claimed(row, channel, configuration(channel.kind, self._sealer.unsealed(channel.config)))
        except SealingError as error:
            return _Claimed(row, channel, None, str(error))
        except (ValidationError, KeyError):
            return _Claimed(
                row, channel, None, "the channel's configuration is one that this release does not take"
            )

    async def _attempt(self, claimed: _Claimed) -> tuple[Outcome, float | None]:
        """Send, and say what came of it and how long the service asked us to wait."""
        row = claimed.row
        try:
            receipt = await self._send(claimed)
        except TemporaryError as error:
            return _outcome("retrying", error, error.is_uncertain), error.retry_after
        except ChannelError as error:
            return _outcome("failed", error), None
        except Exception as error:
            # A fault of ours. Without an outcome it would come again for ever, and no fallback would be told.
            log.exception("a notification can't be made", delivery=str(row.id))
            fault = PermanentError(f"the notification can't be made ({type(error).__name__}): see the workers' log")
            return _outcome("failed", fault), None
        return Outcome("delivered", None, receipt.status_code, receipt.excerpt), None

    async def _send(self, claimed: _Claimed) -> Receipt:
        row, channel = claimed.row, claimed.channel
        if claimed.config is None:
            raise PermanentError(claimed.problem or "")
        notification = notification_from(row.notification)
        outgoing = Outgoing(row.id, notification, words_for(channel, notification))
        return await deliver(channel.kind, claimed.config, outgoing, self._tools)

    async def _record(self, claimed: _Claimed, outcome: Outcome, wait: float | None) -> None:
        """Record for good: what was sent and is not recorded is sent again."""
        if await self._recorded(claimed, outcome, wait):
            _tell(claimed.row, outcome)
        else:
            log.warning("a delivery was taken over by somebody else", delivery=str(claimed.row.id))

    async def _recorded(self, claimed: _Claimed, outcome: Outcome, wait: float | None) -> bool:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._database.system() as session:
                    is_ours = await self._write(session, claimed, outcome, wait)
            except (SQLAlchemyError, OSError) as error:
                if pause > LONGEST_PAUSE_SECONDS:
                    raise
                log.warning("a delivery can't be recorded yet", error=str(error).partition("\n")[0])
                await asyncio.sleep(pause)
                pause *= 2
            else:
                return is_ours

    async def _write(self, session: AsyncSession, claimed: _Claimed, outcome: Outcome, wait: float | None) -> bool:
        row, now = claimed.row, self._now()
        retry_at = None if wait is None else now + timedelta(seconds=wait)
        if not await deliveries.settle(session, row, outcome, now=now, retry_at=retry_at, grace=AGAIN):
            return False
        if outcome.state != "retrying":
            await channels.note_outcome(session, row.channel_id, outcome.error, now)
            await self._finish(session, row, claimed.channel, outcome, now)
        return True

    async def _skip(
        self, session: AsyncSession, row: Delivery, channel: Channel | None, reason: str, now: datetime
    ) -> None:
        await deliveries.skip(session, row.id, reason, now)
        metrics.notifications.labels(row.channel_kind, "skipped").inc()
        await self._finish(session, row, channel, Outcome("skipped", reason), now)

    async def _finish(
        self, session: AsyncSession, row: Delivery, channel: Channel | None, outcome: Outcome, now: datetime
    ) -> None:
        """What follows from an outcome: the fallback, whoever waited, and a line in the timeline."""
        if outcome.state != "delivered" and channel is not None and channel.fallback_channel_id is not None:
            await self._fall_back(session, row, channel.fallback_channel_id, now)
        if row.incident_id is not None:
            await deliveries.release_next(session, row, now)
            await deliveries.note_on_incident(session, row.incident_id, _line(row, outcome), now)

    async def _fall_back(self, session: AsyncSession, row: Delivery, channel_id: UUID, now: datetime) -> None:
        channel = await channels.get(session, channel_id)
        if channel is None or channel.organisation_id != row.organisation_id or row.incident_id is None:
            return
        tag = row.dedupe_key.split(":", 1)[1].rpartition(":")[0]
        fields = ("organisation_id", "incident_id", "episode", "event", "notification")
        again = {name: getattr(row, name) for name in fields}
        key = dedupe_key(row.incident_id, tag, channel.id)
        await deliveries.add_fallback(session, again, channel, instead_of=row.id, key=key, now=now)

    def _now(self) -> datetime:
        return to_datetime(self._clock.now_ms())


def _outcome(state: str, error: ChannelError, is_uncertain: bool = False) -> Outcome:
    return Outcome(state, str(error), error.receipt.status_code, error.receipt.excerpt, is_uncertain)


def _tell(row: Delivery, outcome: Outcome) -> None:
    metrics.notifications.labels(row.channel_kind, outcome.state).inc()
    tell = log.info if outcome.state == "delivered" else log.warning
    tell(
        "notification",
        outcome=outcome.state,
        delivery=str(row.id),
        notification=row.event,
        channel=row.channel_kind,
        attempt=row.attempts,
        status=outcome.status_code,
        error=outcome.error,
    )


def _line(row: Delivery, outcome: Outcome) -> dict[str, object]:
    return {
        "delivery_id": str(row.id),
        "channel_id": str(row.channel_id),
        "channel": row.channel_name,
        "kind": row.channel_kind,
        "event": row.event,
        "state": outcome.state,
        "attempts": row.attempts,
        "error": outcome.error,
        "possibly_duplicated": row.possibly_duplicated or outcome.is_uncertain,
    }


NOTIFICATIONS: TaskSet[Notifier] = TaskSet()
# The waits are the notifier's own decision; the policy only lets it decide.
_POLICY = RetryPolicy(attempts=100, delay=1.0, factor=1.0, maximum=1.0, jitter=0.0)


@NOTIFICATIONS.declare(
    DELIVER_NOTIFICATION_TASK, argument=DeliveryOrder, timeout=60.0, retry=_POLICY, idempotent=True
)
async def deliver_notification(order: DeliveryOrder, context: TaskContext[Notifier]) -> None:
    """Send one notification."""
    await context.resources.deliver(order.delivery_id, is_replay=context.is_replay)


class TaskDeliveryQueue:
    """Hands deliveries to whichever worker takes the task."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue

    async def put(self, delivery: Queued) -> None:
        # With a number: handed over again, it must not be taken for a repetition of what was lost.
        await self._queue.send(
            deliver_notification,
            DeliveryOrder(delivery.id),
            task_id=f"{delivery.id}:{delivery.queued}",
            organisation_id=delivery.organisation_id,
        )
