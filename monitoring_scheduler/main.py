"""A scheduler process: knows all schedules, and sends what is due while it leads or the leader is overdue."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from nats.aio.msg import Msg

from monitoring_scheduler.dispatch import Dispatcher
from monitoring_scheduler.progress import ProgressReporter, read_progress
from monitoring_scheduler.scheduler import K8sScheduler
from monitoring_scheduler.settings import SchedulerSettings
from monitoring_scheduler.stream_guard import StreamGuard
from shared.contracts.names import CHECKS_STREAM, PROGRESS_BUCKET, WATERMARK_KEY
from shared.domain.clock import SteadyClock
from shared.messaging.broker import ResilientPullBroker
from shared.messaging.clock_watch import ClockWatch
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_subject
from shared.messaging.leader import LeaderElection
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.schedule_source import HAScheduleSource, ResilientNATSScheduleSource
from shared.messaging.streams import ensure_streams
from shared.observability import metrics
from shared.observability.health import Health, HealthServer, Probe, keep_ready_file
from shared.observability.logging import configure_logging
from shared.process import Life, join_nats, run_main, run_process
from shared.settings import load

log = structlog.get_logger(__name__)

STALE_AFTER_SECONDS = 30.0
# A worker answers an offer before it begins the check; silence means that another should be asked, several times
# within the shortest interval: a frozen server goes on taking its share of the offers.
OFFER_SECONDS = 0.4
# Checks that are due at the same moment go out in one pass; what finds no room waits for the next one.
CHECKS_IN_FLIGHT = 4096


class Scheduler:
    """The parts of a scheduler process, built in order and stopped in the opposite one."""

    def __init__(self, settings: SchedulerSettings, clock: SteadyClock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SteadyClock()
        self._life = Life()
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._probes: dict[str, Probe] = {"process": self._life.problem}

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises what ends a part for good."""
        self._life.listen_to_signals()
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            publisher = await stack.enter_async_context(Publisher(connection, window=CHECKS_IN_FLIGHT))
            offers = await stack.enter_async_context(Publisher(connection, timeout=OFFER_SECONDS))
            records = await stack.enter_async_context(Publisher(connection))
            reports = await stack.enter_async_context(Publisher(connection))
            stack.push_async_callback(self._life.end)  # before those stop who get the answers to what is sent
            watch = ClockWatch(connection, self._clock)
            await watch.look()
            lease = self._elect(connection)
            source = await self._follow(connection, lease)
            dispatcher = Dispatcher(publisher, offers, records, self._clock, lambda: source.may_send)
            broker = ResilientPullBroker(connection, publisher, CHECKS_STREAM, "", ensure=self._ensure(connection))
            scheduler = K8sScheduler(lease.owner, broker, source, dispatcher, self._clock)
            self._probes["beat"] = scheduler.problem
            self._life.start("clock", watch.run())
            self._life.start("election", lease.run())
            self._life.start("beat", scheduler.run())
            guard = StreamGuard(connection, self._clock, self._ensure(connection), scheduler.repeat_since)
            self._life.start("stream guard", guard.run())
            reporter = ProgressReporter(reports, scheduler.report)
            self._life.start("progress", reporter.run())
            await self._report_health(stack)
            log.info("scheduler started", schedules=len(source))
            await self._life.wait()

    async def _connect(self, stack: AsyncExitStack) -> NatsConnection:
        connection = await join_nats(stack, self._life, self._settings, "scheduler", buffer_writes=False)
        self._probes["nats"] = lambda: None if connection.is_connected else "not connected"
        return connection

    def _ensure(self, connection: NatsConnection) -> Callable[[], Awaitable[None]]:
        return functools.partial(ensure_streams, connection.js, self._settings.nats_replicas)

    def _elect(self, connection: NatsConnection) -> LeaderElection:
        lease = LeaderElection(connection, self._name, ensure=self._ensure(connection), clock=self._clock)
        lease.add_listener(_count_change)
        self._probes["role"] = lambda: None if lease.established.is_set() else "it is not known who leads"
        return lease

    async def _follow(self, connection: NatsConnection, lease: LeaderElection) -> HAScheduleSource:
        """Mirror the reports and then the schedules, whose place in time depends on the last report."""
        schedules = ResilientNATSScheduleSource(connection)
        source = HAScheduleSource(schedules, lease, self._clock)
        connection.add_loss_listener(source.cut_off)
        connection.add_reconnect_listener(source.rejoined)
        lease.add_listener(source.lease_changed)

        def progress_changed(key: str, value: bytes | None) -> None:
            if key == WATERMARK_KEY and (progress := read_progress(value)):
                source.progress_reported(progress)

        async def progress_heard(message: Msg) -> None:
            progress_changed(WATERMARK_KEY, message.data)

        # Heard directly, too: the bucket passes nothing on while its stream has no leader.
        await connection.client.subscribe(bucket_subject(PROGRESS_BUCKET, WATERMARK_KEY), cb=progress_heard)
        reports = KeyValueMirror(connection, PROGRESS_BUCKET)
        reports.add_listener(progress_changed)
        self._life.start("report mirror", reports.run())
        await reports.ready.wait()
        schedules.add_listener(source.schedule_changed)
        self._life.start("schedule mirror", schedules.run())
        await schedules.loaded()
        source.schedules_loaded()
        self._probes["schedules"] = lambda: _stale(schedules.staleness)
        return source

    async def _report_health(self, stack: AsyncExitStack) -> None:
        health = Health(self._probes, live={"beat": self._probes["beat"]})
        server = HealthServer(health, self._settings.metrics_host, self._settings.metrics_port)
        await server.start()
        stack.push_async_callback(server.stop)
        self._life.start("readiness file", keep_ready_file(Path(self._settings.ready_file), health))


def _stale(age: float) -> str | None:
    return f"schedules were last verified {age:.0f} s ago" if age > STALE_AFTER_SECONDS else None


def _count_change(leads: bool, _reason: str) -> None:
    metrics.leader_changes.inc()
    metrics.scheduler_is_leader.set(leads)


def main() -> None:
    """Run a scheduler with the settings of the environment."""
    settings = load(SchedulerSettings)
    configure_logging(settings.log_format, settings.log_level, process="scheduler")
    run_process(Scheduler(settings).run)


if __name__ == "__main__":
    run_main(main)
