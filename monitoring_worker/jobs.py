"""The platform's jobs in a worker: slots of the reserved region, each run through the job runner.

A slot is settled when its run has ended, or found another one going on. One that could not run (a server is away,
only a newer release knows the job) is offered again, to this worker or another, while it is young.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog
from nats.aio.msg import Msg

from shared.contracts.wire import JobTask
from shared.domain.clock import Clock
from shared.jobs.errors import JobNotStartedError
from shared.jobs.periodic import by_name
from shared.jobs.runner import Job, JobRunner
from shared.messaging.connect import describe
from shared.messaging.pull import PullLoop
from shared.messaging.task_format import TaskFormatter

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
LONGEST_PAUSE_SECONDS: Final = 10.0
LONGEST_RETRY_MS: Final = 3_600_000


class JobDuty:
    """Runs what a slot names."""

    def __init__(self, runner: JobRunner, jobs: Iterable[Job], clock: Clock) -> None:
        self._runner, self._jobs, self._clock = runner, by_name(jobs), clock

    async def run(self, task: JobTask) -> bool:
        """Run the job; False when its slot is to be offered again."""
        name = task.run.job
        try:
            if job := self._jobs.get(name):
                await self._runner.attempt(job, slot_ms=task.slot_ms)
                return True
            log.error("a job is unknown to this release", job=name)
        except JobNotStartedError as error:
            log.error("a job could not start", job=name, error=str(error))
        age_ms = self._clock.now_ms() - task.slot_ms
        return age_ms > min(task.interval_ms, LONGEST_RETRY_MS)


class JobReceiver:
    """Takes slots from the queue and settles each after its run."""

    def __init__(self, pull: PullLoop, duty: JobDuty) -> None:
        self._pull, self._duty = pull, duty
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    @property
    def silence(self) -> float:
        """Seconds without a sign of life from the queue, for probes."""
        return self._pull.silence

    async def listen(self, stopping: asyncio.Event, grace_seconds: float) -> None:
        """Work until ``stopping`` is set; then what runs has a grace. Raises ``ConsumerLostError``."""
        stopper = asyncio.create_task(self._stop_with(stopping))
        try:
            async with self._pull:
                async for message in self._pull.messages():
                    await self._gate.acquire()
                    self._start(message)
                await self._finish(grace_seconds)
        finally:
            stopper.cancel()

    async def _stop_with(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        await self._pull.stop()

    def _start(self, message: Msg) -> None:
        task = asyncio.create_task(self._serve(message))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._gate.release()
        if not task.cancelled() and (error := task.exception()):
            log.error("a slot of a job was not handled, through a fault of our own", exc_info=error)

    async def _finish(self, grace_seconds: float) -> None:
        """A run that does not end in time is cancelled: its lock is free then, and its slot comes again."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=grace_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, message: Msg) -> None:
        try:
            task = msgspec.convert(TaskFormatter().loads(message.data).args[0], JobTask)
        except (ValueError, IndexError) as error:
            log.error("a message that names no job is dropped", subject=message.subject, error=describe(error))
            await self._pull.settle(message, message.term())
            return
        if await self._duty.run(task):
            await self._pull.settle(message, message.ack())
        else:
            # While it waits, no newer slot of its job comes: it must not wait for as long as an interval.
            await self._pull.settle(message, message.nak(delay=min(LONGEST_PAUSE_SECONDS, task.interval_ms / 5000)))
