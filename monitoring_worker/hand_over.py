"""Slots that a scheduler hands over itself, because the stream of checks gives no answer.

While three NATS servers elect a new leader of a stream, or while one has no room for a message, requests still
pass. What is taken here is kept by nobody else: the slot audit finds what is lost with this process.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from monitoring_worker.checking import CheckDuty
from shared.contracts.wire import CheckTask
from shared.domain.clock import Clock
from shared.domain.result import SlotKey
from shared.messaging.publisher import acceptance, refusal
from shared.messaging.task_format import TaskFormatter

log = structlog.get_logger(__name__)

MAX_IN_HAND: Final = 10_000
"""Slots whose result the queue has not taken yet: what a worker keeps in memory while the queue is away."""


class HandOver:
    """Takes slots while there is room for their checks and for their results."""

    def __init__(self, duty: CheckDuty, clock: Clock, *, concurrency: int) -> None:
        self._duty, self._clock, self._concurrency = duty, clock, concurrency
        self._in_hand: dict[SlotKey, asyncio.Task[None]] = {}
        # Taken, and not yet among the checks that run: many offers may come at once.
        self._beginning = 0
        self._is_finishing = False

    async def offered(self, payload: bytes) -> bytes:
        """The answer to an offer, given before the check begins. Raises ``ValueError`` for what is no check."""
        task = _read(payload)
        if task.key not in self._in_hand:
            if reason := self._objection(task):
                return refusal(reason)
            self._take(task)
        return acceptance()

    async def finish(self, grace: float) -> None:
        """Take nothing more and wait for what is in hand, at most ``grace`` seconds; what is lost is said."""
        self._is_finishing = True
        try:
            if self._in_hand:
                await asyncio.wait(self._in_hand.values(), timeout=grace)
        finally:
            unfinished = [task for task in self._in_hand.values() if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                log.error("results of checks are lost: the queue did not take them in time", slots=len(unfinished))

    def _objection(self, task: CheckTask) -> str | None:
        if self._is_finishing:
            return "this worker stops"
        if self._clock.now_ms() >= task.slot_ms + task.interval_ms:
            return "overtaken by the monitor's next slot"  # an offer that lay in a frozen server
        if self._duty.running + self._beginning >= self._concurrency:
            return "all places for checks are taken"
        if len(self._in_hand) >= MAX_IN_HAND:
            return "too many results wait for the queue"
        return None

    def _take(self, task: CheckTask) -> None:
        self._beginning += 1
        self._in_hand[task.key] = running = asyncio.create_task(self._run(task))
        running.add_done_callback(lambda done: self._done(task.key, done))

    async def _run(self, task: CheckTask) -> None:
        self._beginning -= 1
        await self._duty.scheduled(task)

    def _done(self, key: SlotKey, done: asyncio.Task[None]) -> None:
        del self._in_hand[key]
        if not done.cancelled() and (error := done.exception()):
            log.error("a check that was taken directly failed", slot=key.message_id, exc_info=error)


def _read(payload: bytes) -> CheckTask:
    arguments = TaskFormatter().loads(payload).args
    if len(arguments) != 1:
        raise ValueError(f"a check has one argument, not {len(arguments)}")
    return msgspec.convert(arguments[0], CheckTask)
