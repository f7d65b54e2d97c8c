"""The API process: HTTP in front, and beside it what carries schedules from PostgreSQL to the schedulers."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import structlog
import uvicorn

from api.app import create_app
from api.context import Context
from api.http_protocol import BoundedProtocol
from api.settings import ApiSettings
from shared.channels.record import Tools
from shared.channels.tools import build_tools
from shared.contracts.names import PINGS_CONSUMER, PINGS_STREAM, SCHEDULES_BUCKET
from shared.contracts.sealing import Sealer
from shared.db.engine import PoolOptions
from shared.db.session import Database
from shared.domain.clock import Clock, SystemClock
from shared.http.door import Door
from shared.http.guard import AddressPolicy
from shared.http.knock import knock
from shared.http.resolver import SystemResolver
from shared.http.transport import guarded_client
from shared.jobs.loop import keep_running
from shared.jobs.runner import JobRunner
from shared.jobs.silence import SilenceMonitor
from shared.messaging.connect import NatsConnection
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_ping_consumer, ensure_streams
from shared.observability.health import Health, Probe
from shared.observability.logging import configure_logging
from shared.process import Life, join_nats, run_main, run_process
from shared.services.alerting import AlertRelay
from shared.services.check_desk import NatsCheckDesk
from shared.services.delivering import TaskDeliveryQueue
from shared.services.job_desk import PlatformJobDesk
from shared.services.letter_desk import LetterDesk
from shared.services.outside_heartbeat import TIMEOUT_SECONDS, OutsideHeartbeat, installation_problem
from shared.services.pings import PingDesk, ReceptionLog, store_handed_over
from shared.services.platform_alerts import PlatformAlerts, letter_troubles, silence_troubles, watchdog_troubles
from shared.services.platform_jobs import ApiJobs, WorkerJobs
from shared.services.regions import RegionWatch
from shared.services.schedules import Reconciler, ScheduleRelay
from shared.services.slot_audit import SlotAuditor
from shared.services.watchdog import Watchdog
from shared.settings import load
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.listener import DeadLetterListener
from shared.tasks.queue import TaskQueue

log = structlog.get_logger(__name__)

STOP_GRACE_SECONDS = 20
RELAY_LATE_SECONDS = 15.0


class _Server(uvicorn.Server):
    """Leaves signals to the process, which has more to stop than HTTP."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Api:
    """The parts of the API process, built in order and stopped in the opposite one."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._life = Life()
        self._probes: dict[str, Probe] = {"process": self._life.problem}

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; raises what ends a part for good."""
        self._life.listen_to_signals()
        async with AsyncExitStack() as stack:
            database = await self._open_database(stack)
            connection = await self._connect(stack)
            publisher = await stack.enter_async_context(Publisher(connection))
            relay, reconciler = self._copy_schedules(database, connection, publisher)
            watchdog = Watchdog(database, connection, self._clock)
            self._life.start("watchdog", watchdog.run())
            regions = RegionWatch(connection)
            self._life.start("regions of workers", regions.run())
            context = Context(
                database=database,
                sealer=Sealer([key.get_secret_value() for key in self._settings.secret_keys]),
                clock=self._clock,
                desk=NatsCheckDesk(connection),
                on_commit=relay.wake,
                pings=await self._receive_pings(stack, database, connection, publisher),
                letters=LetterDesk(DeadLetterDesk(connection, publisher)),
                regions=regions,
                tools=self._tools(),
                jobs=await self._run_jobs(
                    database,
                    connection,
                    publisher,
                    ApiJobs(reconciler, SlotAuditor(watchdog.reasons, self._settings.retention_days)),
                ),
            )
            self._raise_alarms(database, connection, publisher, watchdog)
            await self._send_heartbeats(stack, database, watchdog)
            stack.push_async_callback(self._life.end)
            await self._serve(context)

    async def _open_database(self, stack: AsyncExitStack) -> Database:
        settings = self._settings
        database = Database(
            settings.database_url.get_secret_value(),
            application_name="tocsin-api",
            pool=PoolOptions(size=settings.database_pool),
        )
        stack.push_async_callback(database.close)
        await database.verify()
        return database

    async def _connect(self, stack: AsyncExitStack) -> NatsConnection:
        connection = await join_nats(stack, self._life, self._settings, "api", buffer_writes=False)
        self._probes["nats"] = lambda: None if connection.is_connected else "not connected"
        return connection

    def _copy_schedules(
        self, database: Database, connection: NatsConnection, publisher: Publisher
    ) -> tuple[ScheduleRelay, Reconciler]:
        """Carry changes of monitors to the schedulers; the reconciler repairs what differs."""
        relay = ScheduleRelay(database, publisher, self._clock)
        # Without grace: what is gone from the bucket is to be put back, not to be believed for a while.
        bucket = KeyValueMirror(connection, SCHEDULES_BUCKET, grace=0.0)

        async def ensure() -> None:
            await self._ensure_streams(connection)
            await bucket.ready.wait()

        self._life.start("relay", relay.run())
        self._life.start("schedule mirror", bucket.run())
        self._probes["relay"] = lambda: _lateness("changes of monitors have not been passed on", relay, self._clock)
        return relay, Reconciler(database, lambda: bucket.data, relay, ensure)

    async def _run_jobs(
        self, database: Database, connection: NatsConnection, publisher: Publisher, own: ApiJobs
    ) -> PlatformJobDesk:
        """Run the jobs that must not depend on schedulers and workers, and watch all of them for silence."""
        settings = self._settings
        desk = DeadLetterDesk(connection, publisher)
        workers = WorkerJobs(desk, settings.retention_days, settings.dead_letter_days)
        jobs = [*own.all(), *workers.all()]
        runner = JobRunner(database, connection, self._clock, functools.partial(self._ensure_streams, connection))
        await runner.register(jobs)
        self._life.start("jobs", keep_running(runner, own.all()))
        self._silence = SilenceMonitor(database, self._clock)
        self._life.start("silence of jobs", self._silence.run())
        return PlatformJobDesk(runner, jobs)

    def _raise_alarms(
        self, database: Database, connection: NatsConnection, publisher: Publisher, watchdog: Watchdog
    ) -> None:
        """Tell people: of incidents, and of trouble of the platform itself."""
        relay = AlertRelay(database, TaskDeliveryQueue(TaskQueue(publisher, self._clock)), self._clock)
        self._life.start("alerts", relay.run())
        self._probes["alerts"] = lambda: _lateness("incidents have not been alerted", relay, self._clock)
        alerts = PlatformAlerts(database, self._clock)
        desk = DeadLetterDesk(connection, publisher)
        listener = DeadLetterListener(
            connection, desk, on_letter=alerts.on_letter, replicas=self._settings.nats_replicas
        )
        self._life.start("dead letters", listener.run())
        sources = (watchdog_troubles(watchdog), silence_troubles(self._silence), letter_troubles(desk))
        self._life.start("alerts of the platform", alerts.run(*sources))

    def _tools(self) -> Tools:
        """What test messages are sent with: the same as in a worker."""
        settings = self._settings
        return build_tools(
            AddressPolicy(settings.allow_private_targets, tuple(settings.allowed_networks)),
            self._clock,
            smtp_url=None if settings.smtp_url is None else settings.smtp_url.get_secret_value(),
            smtp_from=settings.smtp_from,
            allow_apprise=settings.apprise,
        )

    async def _send_heartbeats(self, stack: AsyncExitStack, database: Database, watchdog: Watchdog) -> None:
        """Tell a watcher outside, if there is one, that this installation works."""
        settings = self._settings
        if settings.heartbeat_url is None:
            return
        policy = AddressPolicy(settings.allow_private_targets, tuple(settings.allowed_networks))
        door = Door(policy, self._clock.monotonic, SystemResolver())
        client = await stack.enter_async_context(guarded_client(door, timeout_seconds=TIMEOUT_SECONDS))
        heartbeat = OutsideHeartbeat(
            functools.partial(knock, client, settings.heartbeat_url.get_secret_value()),
            functools.partial(installation_problem, database, watchdog, self._clock),
            settings.heartbeat_seconds,
        )
        self._life.start("heartbeat", heartbeat.run())

    async def _ensure_streams(self, connection: NatsConnection) -> None:
        await ensure_streams(connection.js, self._settings.nats_replicas)

    async def _receive_pings(
        self, stack: AsyncExitStack, database: Database, connection: NatsConnection, publisher: Publisher
    ) -> PingDesk:
        """Store pings of heartbeats, and those that NATS kept while PostgreSQL was away."""

        async def ensure() -> None:
            await self._ensure_streams(connection)
            await ensure_ping_consumer(connection.js)

        await ensure()
        desk = PingDesk(database, self._clock, publisher)
        pull = PullLoop(connection, PINGS_STREAM, PINGS_CONSUMER, ensure=ensure)
        await stack.enter_async_context(pull)
        self._life.start("pings", desk.run())
        self._life.start("pings handed over", store_handed_over(database, pull))
        self._life.start("reception", ReceptionLog(database, desk, self._clock).run())
        return desk

    async def _serve(self, context: Context) -> None:
        """Answer requests until the process stops, then finish the ones in hand."""
        settings = self._settings
        listener = _listen(settings.api_host, settings.api_port)
        server = _Server(
            uvicorn.Config(
                create_app(context, Health(self._probes)),
                http=BoundedProtocol,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=STOP_GRACE_SECONDS,
            )
        )
        serving = self._life.start("http", server.serve(sockets=[listener]))
        log.info("api listening", host=settings.api_host, port=listener.getsockname()[1])
        try:
            await self._life.wait()
        finally:
            server.should_exit = True
            await asyncio.wait({serving})


def _lateness(what: str, relay: ScheduleRelay | AlertRelay, clock: Clock) -> str | None:
    age = clock.monotonic() - relay.last_success
    return f"{what} for {age:.0f} s" if age > RELAY_LATE_SECONDS else None


def _listen(host: str, port: int) -> socket.socket:
    """Bound here, so that an address in use ends the process with its own words: ``OSError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def main() -> None:
    """Run the API with the settings of the environment."""
    settings = load(ApiSettings)
    configure_logging(settings.log_format, settings.log_level, process="api")
    run_process(Api(settings).run)


if __name__ == "__main__":
    run_main(main)
