"""A scheduler process: knows all schedules, and sends what is due while it leads or the leader is overdue."""

from __future__ import annotations

import functools
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from monitoring_scheduler.dispatch import Dispatcher
from monitoring_scheduler.loop import SchedulerLoop
from monitoring_scheduler.progress import ProgressReporter, read_progress
from monitoring_scheduler.settings import SchedulerSettings
from shared.contracts.names import PROGRESS_BUCKET, SCHEDULES_BUCKET, WATERMARK_KEY
from shared.contracts.wire import Progress
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.leader import LeaderElection
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.observability import metrics
from shared.observability.health import Health, HealthServer, Probe, keep_ready_file
from shared.observability.logging import configure_logging
from shared.process import Life, run_main, run_process
from shared.settings import load

log = structlog.get_logger(__name__)

STALE_AFTER_SECONDS = 30.0
STALLED_AFTER_SECONDS = 10.0


class Scheduler:
    """The parts of a scheduler, built in order and stopped in the opposite one."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._life = Life()
        self._name = f"{socket.gethostname()}-{os.getpid()}"

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises what ends a part for good."""
        self._life.listen_to_signals()
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            publisher = await stack.enter_async_context(Publisher(connection))
            ensure = functools.partial(ensure_streams, connection.js, self._settings.nats_replicas)
            lease = LeaderElection(connection, self._name, ensure=ensure)
            lease.add_listener(_count_change)
            loop = SchedulerLoop(self._name, lease, self._clock)
            connection.add_reconnect_listener(loop.distrust_reports)
            stack.push_async_callback(self._life.end)
            schedules = await self._follow(connection, loop)
            dispatcher = Dispatcher(publisher, self._clock, lambda: loop.dispatching)
            self._life.start("election", lease.run())
            self._life.start("loop", loop.run(dispatcher))
            self._life.start(
                "progress", ProgressReporter(publisher, lambda: _report(lease, loop, dispatcher)).run()
            )
            await self._report_health(stack, self._probes(connection, lease, schedules, loop))
            log.info("scheduler started", schedules=len(schedules.data))
            await self._life.wait()

    async def _connect(self, stack: AsyncExitStack) -> NatsConnection:
        connection = await connect(
            self._settings.nats_url,
            name=f"tocsin-scheduler-{self._name}",
            buffer_writes=False,
            on_closed=lambda: self._life.fail("the connection to NATS is closed for good"),
        )
        stack.push_async_callback(connection.close)
        await ensure_streams(connection.js, self._settings.nats_replicas)
        return connection

    async def _follow(self, connection: NatsConnection, loop: SchedulerLoop) -> KeyValueMirror:
        """Mirror the reports and then the schedules, whose place in time depends on the last report."""

        def progress_changed(key: str, value: bytes | None) -> None:
            if key == WATERMARK_KEY and (progress := read_progress(value)):
                loop.progress_reported(progress)

        progress = KeyValueMirror(connection, PROGRESS_BUCKET)
        progress.add_listener(progress_changed)
        self._life.start("progress mirror", progress.run())
        await progress.ready.wait()
        schedules = KeyValueMirror(connection, SCHEDULES_BUCKET)
        schedules.add_listener(loop.schedule_changed)
        self._life.start("schedule mirror", schedules.run())
        await schedules.ready.wait()
        loop.warm = True
        return schedules

    def _probes(
        self, connection: NatsConnection, lease: LeaderElection, schedules: KeyValueMirror, loop: SchedulerLoop
    ) -> dict[str, Probe]:
        def stale() -> str | None:
            age = schedules.staleness
            return f"schedules were last verified {age:.0f} s ago" if age > STALE_AFTER_SECONDS else None

        def stalled() -> str | None:
            age = self._clock.monotonic() - loop.last_pass
            return f"no planning pass for {age:.0f} s" if age > STALLED_AFTER_SECONDS else None

        return {
            "process": self._life.problem,
            "nats": lambda: None if connection.is_connected else "not connected",
            "role": lambda: None if lease.established.is_set() else "it is not known who leads",
            "schedules": stale,
            "loop": stalled,
        }

    async def _report_health(self, stack: AsyncExitStack, probes: dict[str, Probe]) -> None:
        health = Health(probes, live={"loop": probes["loop"]})
        server = HealthServer(health, self._settings.metrics_host, self._settings.metrics_port)
        await server.start()
        stack.push_async_callback(server.stop)
        self._life.start("readiness file", keep_ready_file(Path(self._settings.ready_file), health))


def _report(lease: LeaderElection, loop: SchedulerLoop, dispatcher: Dispatcher) -> Progress | None:
    return loop.report(dispatcher) if lease.holds else None


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
