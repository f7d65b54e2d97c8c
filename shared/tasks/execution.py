"""One delivery of a task: run it or wait, and settle its message only after what follows from that is stored.

A process may die between any two lines here. What is then on disk says how it goes on: the message itself, which
comes again until it is settled, and the journal, which says what is done already.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from prometheus_client import Counter, Histogram

from shared.domain.clock import Clock
from shared.messaging.connect import describe
from shared.messaging.errors import MessagingError
from shared.observability import metrics
from shared.tasks.declaration import Task, TaskContext
from shared.tasks.errors import TaskError
from shared.tasks.failures import WORKER_LOST, kind_of, message_of
from shared.tasks.journal import NOTHING, Entry, Journal, Journals
from shared.tasks.letter_box import LETTER_HEADER, LetterBox, organisation_of, worker_name
from shared.tasks.letters import Attempt
from shared.tasks.policy import RetryNotice, next_delay

NOT_BEFORE_HEADER: Final = "Tocsin-Not-Before"
"""On a message that was sent with a delay: the time, in milliseconds, before which it is not run."""

LOST_RUNS: Final = 10
"""So many runs in a row may end without an outcome; then the task itself is taken to be what kills workers."""

_UNSUSPICIOUS_RUNS: Final = 2
_LONGEST_ISOLATION_SECONDS: Final = 60.0
_HOOK_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Delivery:
    """A message in hand; ``entry`` is the journal as it was last read or written."""

    task: Task[Any, Any]
    resources: Any
    message: Msg
    task_id: str
    argument: Any
    entry: Entry = NOTHING

    @property
    def is_first(self) -> bool:
        return _deliveries(self.message.reply) == 1

    @property
    def key(self) -> str:
        """The journal of this message alone: a task that is replayed is a new message and starts anew."""
        return f"{self.task_id.replace(':', '=')}.{self.message.metadata.sequence.stream}"

    @property
    def attempt(self) -> int:
        """The number of the attempt that is due, from 1."""
        return len(self.entry.journal.attempts) + 1


def _deliveries(reply: str) -> int:
    """How often a message was delivered; all of its metadata would cost more than the rest of a delivery.

    ``$JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.…``, or without domain and account.
    """
    parts = reply.split(".")
    return int(parts[4] if len(parts) == 9 else parts[6])


class _Meters(NamedTuple):
    """The metrics of one task: finding them by their labels each time would cost more than counting."""

    duration: Histogram
    working: Counter
    retrying: Counter
    retries: Counter
    failures: Counter


@functools.cache
def _meters(task: str) -> _Meters:
    return _Meters(
        metrics.task_duration.labels(task),
        metrics.task_seconds.labels(task, "work"),
        metrics.task_seconds.labels(task, "retries"),
        metrics.task_retries.labels(task),
        metrics.task_failures.labels(task),
    )


class TaskRunner:
    """Runs deliveries; ``let_go`` leaves a message to redelivery."""

    def __init__(
        self,
        journals: Journals,
        letters: LetterBox,
        clock: Clock,
        let_go: Callable[[Msg], None],
        rng: random.Random | None = None,
    ) -> None:
        self._journals, self._letters, self._clock, self._let_go = journals, letters, clock, let_go
        self._rng = rng or random.SystemRandom()
        self._worker = worker_name()
        self._suspect: Delivery | None = None

    async def deliver(self, delivery: Delivery) -> None:
        """Work on one delivery. Never raises but for cancellation, which leaves the message to redelivery."""
        try:
            if await self._is_due(delivery):
                await self._attempt(delivery)
        except Exception as error:  # noqa: BLE001 whatever it is, the message must not be held for ever
            # What could not be read or stored now can be at the next delivery; it comes when nobody holds it.
            _log.warning(
                "task is left to its next delivery",
                task=delivery.task.name,
                task_id=delivery.task_id,
                error=describe(error),
                exc_info=not isinstance(error, TaskError | MessagingError | NatsError | OSError),
            )
            self._let_go(delivery.message)
        finally:
            if self._suspect is delivery:
                self._suspect = None

    async def _is_due(self, delivery: Delivery) -> bool:
        """Whether to run the task now; if not, the message is settled as its journal says."""
        if delivery.is_first:
            return await self._is_wanted_now(delivery)
        delivery.entry = await self._journals.read(delivery.key)
        journal = delivery.entry.journal
        if journal.is_over:
            await self._bury(delivery)
        elif wait := journal.wait_seconds(self._clock.now_ms()):
            await delivery.message.nak(delay=wait)
        elif journal.starts >= LOST_RUNS:
            await self._end_as_lost(delivery)
        elif journal.starts >= _UNSUSPICIOUS_RUNS and not self._may_run_apart(delivery):
            await self._isolate(delivery)
        elif await self._is_wanted_now(delivery):
            await self._write(delivery, journal.begun())
            return True
        return False

    async def _is_wanted_now(self, delivery: Delivery) -> bool:
        headers = delivery.message.headers
        if not headers or NOT_BEFORE_HEADER not in headers:
            return True
        wait_ms = int(headers[NOT_BEFORE_HEADER]) - self._clock.now_ms()
        if wait_ms <= 0:
            return True
        await delivery.message.nak(delay=wait_ms / 1000)
        return False

    async def _attempt(self, delivery: Delivery) -> None:
        task = delivery.task
        began, began_ms = self._clock.monotonic(), self._clock.now_ms()
        error = await self._run(delivery)
        seconds = self._clock.monotonic() - began
        meters = _meters(task.name)
        meters.duration.observe(seconds)
        (meters.retrying if error else meters.working).inc(seconds)
        if error is None:
            await delivery.message.ack()
            if delivery.entry.revision:
                await self._journals.drop(delivery.key, delivery.entry.revision)
            return
        attempt = Attempt(began_ms, kind_of(error), message_of(error), self._worker, round(seconds, 3))
        await self._after_failure(delivery, attempt, error)

    async def _run(self, delivery: Delivery) -> Exception | None:
        task = delivery.task
        organisation_id = organisation_of(delivery.message.subject)
        context = TaskContext(
            delivery.task_id,
            delivery.attempt,
            organisation_id,
            delivery.resources,
            delivery.key,
            is_replay=LETTER_HEADER in (delivery.message.headers or {}),
        )
        try:
            argument = msgspec.convert(delivery.argument, task.argument)
            async with asyncio.timeout(task.timeout):
                await task.function(argument, context)
        except Exception as error:  # noqa: BLE001 whatever a task raises is its outcome, judged by its policy
            return error
        return None

    async def _after_failure(self, delivery: Delivery, attempt: Attempt, error: Exception) -> None:
        task, journal = delivery.task, delivery.entry.journal
        first = (*journal.attempts, attempt)[0]
        now_ms = self._clock.now_ms()
        spent = (now_ms - first.at_ms) / 1000
        delay = next_delay(task.retry, delivery.attempt, error, spent=spent, now_ms=now_ms, rng=self._rng)
        if delay is None:
            await self._write(delivery, journal.ended(attempt))
            await self._bury(delivery)
            return
        _log.warning(
            "attempt failed, another follows",
            task=task.name,
            task_id=delivery.task_id,
            attempt=delivery.attempt,
            error=attempt.error_kind,
            delay=round(delay, 3),
        )
        notice = RetryNotice(task.name, delivery.task_id, delivery.attempt, error, delay)
        await self._write(delivery, journal.failed(attempt, now_ms + round(delay * 1000)))
        await delivery.message.nak(delay=delay)
        meters = _meters(task.name)
        meters.retries.inc()
        meters.retrying.inc(delay)
        await _tell(task, notice)

    async def _bury(self, delivery: Delivery) -> None:
        """Letter first, then the message, then the journal: a repetition from anywhere makes the same letter."""
        await self._letters.put_task(
            delivery.message,
            task=delivery.task.name,
            task_id=delivery.task_id,
            argument=delivery.argument,
            attempts=delivery.entry.journal.attempts,
        )
        await delivery.message.ack()
        _meters(delivery.task.name).failures.inc()
        await self._journals.drop(delivery.key, delivery.entry.revision)

    async def _end_as_lost(self, delivery: Delivery) -> None:
        now_ms = self._clock.now_ms()
        text = f"{LOST_RUNS} runs in a row ended without an outcome: their workers died, or were stopped for good"
        await self._write(delivery, delivery.entry.journal.ended(Attempt(now_ms, WORKER_LOST, text, self._worker)))
        await self._bury(delivery)

    def _may_run_apart(self, delivery: Delivery) -> bool:
        """Whether a suspect has had its wait, and takes the one place that a process has for suspects."""
        if not delivery.entry.journal.held_back or self._suspect:
            return False
        self._suspect = delivery
        return True

    async def _isolate(self, delivery: Delivery) -> None:
        """Let time pass before a task runs again that was in hand when workers died, again and again.

        One task kills its worker, and all that run there with it come back at the same moment: different waits
        part them, and a process runs one suspect at a time, so that the others get done and only the culprit goes
        on counting.
        """
        starts = delivery.entry.journal.starts
        wait = self._rng.uniform(0, min(2.0 ** (starts - 1), _LONGEST_ISOLATION_SECONDS))
        await self._write(delivery, delivery.entry.journal.held(self._clock.now_ms() + round(wait * 1000)))
        await delivery.message.nak(delay=max(wait, 0.001))

    async def _write(self, delivery: Delivery, journal: Journal) -> None:
        revision = delivery.entry.revision
        delivery.entry = await self._journals.write(delivery.key, journal, revision, self._clock.now_ms())


async def _tell(task: Task[Any, Any], notice: RetryNotice) -> None:
    if task.retry.on_retry is None:
        return
    try:
        async with asyncio.timeout(_HOOK_SECONDS):
            await task.retry.on_retry(notice)
    except Exception as error:  # noqa: BLE001 a hook is told, it has no say
        _log.error("on_retry failed", task=task.name, task_id=notice.task_id, error=describe(error))
