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
from api.settings import ApiSettings
from shared.contracts.names import SCHEDULES_BUCKET
from shared.contracts.sealing import Sealer
from shared.db.engine import PoolOptions
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.mirror import KeyValueMirror
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.observability.health import Health, Probe
from shared.observability.logging import configure_logging
from shared.process import Life, join_nats, run_main, run_process
from shared.services.check_desk import NatsCheckDesk
from shared.services.housekeeping import keep_house_hourly
from shared.services.schedules import Reconciler, ScheduleRelay
from shared.services.slot_audit import SlotAuditor
from shared.services.watchdog import Watchdog
from shared.settings import load

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
            context = Context(
                database=database,
                sealer=Sealer([key.get_secret_value() for key in self._settings.secret_keys]),
                clock=self._clock,
                desk=NatsCheckDesk(connection),
                on_commit=(await self._copy_schedules(stack, database, connection)).wake,
            )
            self._life.start("housekeeping", keep_house_hourly(database, self._clock))
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

    async def _copy_schedules(
        self, stack: AsyncExitStack, database: Database, connection: NatsConnection
    ) -> ScheduleRelay:
        """Carry changes of monitors to the schedulers, and repair what differs."""
        publisher = await stack.enter_async_context(Publisher(connection))
        relay = ScheduleRelay(database, publisher, self._clock)
        # Without grace: what is gone from the bucket is to be put back, not to be believed for a while.
        bucket = KeyValueMirror(connection, SCHEDULES_BUCKET, grace=0.0)
        ensure = functools.partial(ensure_streams, connection.js, self._settings.nats_replicas)
        reconciler = Reconciler(database, lambda: bucket.data, relay, ensure)

        async def reconcile() -> None:
            await bucket.ready.wait()
            await reconciler.run()

        self._life.start("relay", relay.run())
        self._life.start("schedule mirror", bucket.run())
        self._life.start("reconciler", reconcile())
        watchdog = Watchdog(database, connection, self._clock)
        self._life.start("watchdog", watchdog.run())
        self._life.start("slot audit", SlotAuditor(database, self._clock, watchdog.reasons).run())
        self._probes["relay"] = lambda: self._relay_problem(relay)
        return relay

    def _relay_problem(self, relay: ScheduleRelay) -> str | None:
        age = self._clock.monotonic() - relay.last_success
        return f"changes of monitors have not been passed on for {age:.0f} s" if age > RELAY_LATE_SECONDS else None

    async def _serve(self, context: Context) -> None:
        """Answer requests until the process stops, then finish the ones in hand."""
        settings = self._settings
        listener = _listen(settings.api_host, settings.api_port)
        server = _Server(
            uvicorn.Config(
                create_app(context, Health(self._probes)),
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
