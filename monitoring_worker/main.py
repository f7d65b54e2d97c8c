"""A worker process: pulls the checks of its region, runs them, and writes results into PostgreSQL."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import structlog
from taskiq.acks import AcknowledgeType

from monitoring_worker import tasks
from monitoring_worker.canaries import Canaries
from monitoring_worker.checking import CheckDuty
from monitoring_worker.hand_over import HandOver
from monitoring_worker.jobs import JobDuty, JobReceiver
from monitoring_worker.notifications import build_notifier
from monitoring_worker.probes.runner import CheckRunner
from monitoring_worker.recorder import Recorder
from monitoring_worker.results import QueuedResults
from monitoring_worker.settings import WorkerSettings
from monitoring_worker.sweeping import IncidentSweeper
from shared.contracts import names
from shared.contracts.sealing import Sealer
from shared.contracts.wire import RunNow
from shared.db.session import Database
from shared.domain.clock import SteadyClock
from shared.domain.region import PLATFORM_REGION
from shared.http.guard import AddressPolicy
from shared.jobs.runner import JobRunner
from shared.messaging.broker import ResilientPullBroker
from shared.messaging.clock_watch import ClockWatch
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.requests import RequestServer
from shared.messaging.streams import ensure_consumer, ensure_recorder, ensure_streams
from shared.observability import metrics
from shared.observability.health import Health, HealthServer, Probe, keep_ready_file
from shared.observability.logging import configure_logging
from shared.process import Life, join_nats, run_main, run_process
from shared.services.delivering import NOTIFICATIONS
from shared.services.heartbeats import HeartbeatJudge
from shared.services.incidents import reconsider
from shared.services.maintenance import MaintenanceKeeper
from shared.services.platform_jobs import WorkerJobs
from shared.settings import load
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letter_box import LetterBox
from shared.tasks.worker import MessageReceiver, TaskWorker

log = structlog.get_logger(__name__)

STOP_GRACE_SECONDS = 25.0
PREFETCH = 64
RECORDER_PREFETCH = 50
JOB_PREFETCH = 4
# Less than the grace of all, so that a run that does not end can still be recorded.
JOB_GRACE_SECONDS = 20.0
# Less than the grace of all, so that what is lost can still be said.
HAND_OVER_GRACE_SECONDS = 23.0
DEAF_AFTER_SECONDS = 10.0
RECORDER_STUCK_SECONDS = 15.0


class Worker:
    """The parts of a worker, built in order and stopped in the opposite one."""

    def __init__(self, settings: WorkerSettings, clock: SteadyClock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SteadyClock()
        self._life = Life()
        self._probes: dict[str, Probe] = {"process": self._life.problem}

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises what ends a part for good."""
        self._life.listen_to_signals()
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            publisher = await stack.enter_async_context(Publisher(connection))
            duty = self._duty(publisher)
            listening = []
            if self._settings.recorder:
                database = await self._open_database(stack)
                await self._record(stack, connection, LetterBox(publisher), database)
                listening.append(await self._take_jobs(connection, publisher, database))
                self._watch_the_clock(database)
                listening.append(self._run_tasks(stack, connection, publisher, database))
            listening.append(await self._take_checks(stack, connection, publisher, duty))
            await self._take_requests(stack, connection, duty)
            listening.append(self._take_by_hand(connection, duty))
            await self._report_health(stack)
            log.info("worker started", region=self._settings.region)
            await self._life.wait()
            log.info("finishing the checks, jobs and tasks in hand")
            await asyncio.wait_for(asyncio.gather(*listening), STOP_GRACE_SECONDS)

    async def _connect(self, stack: AsyncExitStack) -> NatsConnection:
        connection = await join_nats(stack, self._life, self._settings, "worker", buffer_writes=True)
        self._probes["nats"] = lambda: None if connection.is_connected else "not connected"
        watch = ClockWatch(connection, self._clock)
        await watch.look()
        self._life.start("clock", watch.run())
        return connection

    def _duty(self, publisher: Publisher) -> CheckDuty:
        settings = self._settings
        policy = AddressPolicy(
            allow_private=settings.allow_private_targets, allowed_networks=tuple(settings.allowed_networks)
        )
        keys = [key.get_secret_value() for key in settings.secret_keys]
        runner = CheckRunner(policy, self._clock)
        results = QueuedResults(publisher, settings.region)
        return CheckDuty(
            runner,
            Sealer(keys),
            results.put,
            self._clock,
            region=settings.region,
            worker=f"{socket.gethostname()}-{os.getpid()}",
            canaries=self._watch_canaries(),
        )

    def _watch_canaries(self) -> Canaries | None:
        if not self._settings.canaries:
            return None
        # The operator names them, so they may be anywhere.
        policy = AddressPolicy(allow_private=True, allowed_networks=tuple(self._settings.allowed_networks))
        canaries = Canaries(self._settings.canaries, CheckRunner(policy, self._clock), self._clock)
        self._life.start("canaries", canaries.run())
        self._probes["canaries"] = lambda: canaries.trouble
        return canaries

    async def _open_database(self, stack: AsyncExitStack) -> Database:
        database = Database(self._settings.database_url.get_secret_value(), application_name="tocsin-worker")
        stack.push_async_callback(database.close)
        await database.verify()
        return database

    async def _record(
        self, stack: AsyncExitStack, connection: NatsConnection, letters: LetterBox, database: Database
    ) -> None:
        ensure = functools.partial(_ensure_recorder, connection, self._settings.nats_replicas)
        await ensure()
        pull = PullLoop(
            connection, names.RESULTS_STREAM, names.RECORDER_CONSUMER, ensure=ensure, batch=RECORDER_PREFETCH
        )
        await stack.enter_async_context(pull)
        recorder = Recorder(database, pull, self._clock, letters)
        self._life.start("recorder", recorder.run())
        self._life.start("incidents", IncidentSweeper(database, self._clock).run())
        self._probes["recorder"] = lambda: _recorder_problem(recorder, self._clock.monotonic())

    def _watch_the_clock(self, database: Database) -> None:
        """Judge heartbeats, and have monitors looked at again when a maintenance window begins or ends."""
        judge = HeartbeatJudge(database, self._clock)
        self._life.start("heartbeats", judge.run())
        self._life.start("maintenance", MaintenanceKeeper(database, self._clock, reconsider).run())
        self._probes["heartbeats"] = lambda: _judge_problem(self._clock.monotonic() - judge.last_success)

    async def _take_jobs(
        self, connection: NatsConnection, publisher: Publisher, database: Database
    ) -> asyncio.Task[None]:
        """Run the platform's own jobs, which come through the same queue as checks."""
        settings = self._settings
        ensure = functools.partial(_ensure_checks, connection, PLATFORM_REGION, settings.nats_replicas)
        await ensure()
        runner = JobRunner(database, connection, self._clock, ensure)
        desk = DeadLetterDesk(connection, publisher)
        jobs = WorkerJobs(desk, settings.retention_days, settings.dead_letter_days).all()
        await runner.register(jobs)
        consumer = names.worker_consumer(PLATFORM_REGION)
        pull = PullLoop(connection, names.CHECKS_STREAM, consumer, ensure=ensure, batch=JOB_PREFETCH)
        receiver = JobReceiver(pull, JobDuty(runner, jobs, self._clock))
        self._probes["jobs"] = lambda: _silence_problem(receiver.silence)
        return self._life.start("jobs", receiver.listen(self._life.stopping, JOB_GRACE_SECONDS))

    def _run_tasks(
        self, stack: AsyncExitStack, connection: NatsConnection, publisher: Publisher, database: Database
    ) -> asyncio.Task[None]:
        worker = TaskWorker(
            connection,
            publisher,
            self._clock,
            replicas=self._settings.nats_replicas,
            stop_grace=STOP_GRACE_SECONDS,
        )
        worker.add(NOTIFICATIONS, build_notifier(self._settings, database, self._clock))
        stack.push_async_callback(worker.close)
        self._probes["tasks"] = lambda: _silence_problem(worker.silence)
        return self._life.start("tasks", worker.listen(self._life.stopping))

    async def _take_checks(
        self, stack: AsyncExitStack, connection: NatsConnection, publisher: Publisher, duty: CheckDuty
    ) -> asyncio.Task[None]:
        region = self._settings.region
        ensure = functools.partial(_ensure_checks, connection, region, self._settings.nats_replicas)
        await ensure()
        letters = LetterBox(publisher)
        broker = ResilientPullBroker(
            connection,
            publisher,
            names.CHECKS_STREAM,
            names.worker_consumer(region),
            ensure=ensure,
            batch=min(PREFETCH, self._settings.worker_concurrency),
            on_reinitialised=metrics.consumer_reinitialisations.inc,
            dead_letters=letters.put_message,
        )
        tasks.register(broker, duty, letters)
        receiver = MessageReceiver(
            broker,
            max_async_tasks=self._settings.worker_concurrency,
            validate_params=False,
            ack_type=AcknowledgeType.WHEN_EXECUTED,
            wait_tasks_timeout=STOP_GRACE_SECONDS,
        )
        stack.push_async_callback(broker.shutdown)
        listening = self._life.start("checks", receiver.listen(self._life.stopping))
        self._probes["checks"] = lambda: _silence_problem(broker.pull.silence)
        return listening

    async def _take_requests(self, stack: AsyncExitStack, connection: NatsConnection, duty: CheckDuty) -> None:
        async def answer(payload: bytes) -> bytes:
            return msgspec.json.encode(await duty.on_demand(msgspec.json.decode(payload, type=RunNow)))

        server = RequestServer(connection, names.run_now_subject(self._settings.region), answer)
        await server.start()
        stack.push_async_callback(server.stop)

    def _take_by_hand(self, connection: NatsConnection, duty: CheckDuty) -> asyncio.Task[None]:
        concurrency = self._settings.worker_concurrency
        hand_over = HandOver(duty, self._clock, concurrency=concurrency)
        subject = names.hand_over_subject(self._settings.region)
        server = RequestServer(connection, subject, hand_over.offered, limit=concurrency)

        async def serve() -> None:
            await server.start()
            try:
                await self._life.stopping.wait()
                await server.stop()
            finally:
                await hand_over.finish(HAND_OVER_GRACE_SECONDS)

        return self._life.start("hand over", serve())

    async def _report_health(self, stack: AsyncExitStack) -> None:
        health = Health(self._probes)
        server = HealthServer(health, self._settings.metrics_host, self._settings.metrics_port)
        await server.start()
        stack.push_async_callback(server.stop)
        self._life.start("readiness file", keep_ready_file(Path(self._settings.ready_file), health))
        stack.push_async_callback(self._life.end)


async def _ensure_checks(connection: NatsConnection, region: str, replicas: int) -> None:
    await ensure_streams(connection.js, replicas)
    await ensure_consumer(connection.js, region)


async def _ensure_recorder(connection: NatsConnection, replicas: int) -> None:
    await ensure_streams(connection.js, replicas)
    await ensure_recorder(connection.js)


def _silence_problem(silence: float) -> str | None:
    return f"no sign of life from the queue for {silence:.0f} s" if silence > DEAF_AFTER_SECONDS else None


def _judge_problem(age: float) -> str | None:
    return f"heartbeats have not been judged for {age:.0f} s" if age > RECORDER_STUCK_SECONDS else None


def _recorder_problem(recorder: Recorder, now: float) -> str | None:
    if recorder.failing_since is None or now - recorder.failing_since < RECORDER_STUCK_SECONDS:
        return None
    return f"results can't be stored: {recorder.last_error}"


def main(region: str | None = None) -> None:
    """Run a worker with the settings of the environment; ``region`` overrides TOCSIN_REGION."""
    settings = load(WorkerSettings, **({"region": region} if region else {}))
    configure_logging(settings.log_format, settings.log_level, process="worker", region=settings.region)
    run_process(Worker(settings).run)


if __name__ == "__main__":
    run_main(main)
