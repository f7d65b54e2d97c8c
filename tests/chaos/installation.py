"""A whole installation whose every part can be broken: servers, a network per process, and the processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import httpx

from shared.contracts.sealing import Sealer
from shared.db.migrate import upgrade
from shared.db.models import Organisation
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.monitor import MonitorSpec
from shared.services.monitors import MonitorService
from shared.testing.nats import FlakyProxy, NatsServer, free_port
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import eventually
from tests.chaos.processes import Service

SECRET_KEY = "k" * 32
REGIONS = ("default", "eu")
MODULES = {
    "api": "api.main",
    "scheduler": "monitoring_scheduler.main",
    "worker": "monitoring_worker.main",
}
clock = SystemClock()


class Installation:
    """One API, two schedulers, two workers in ``default`` and one in ``eu``; each reaches NATS by its own proxy.

    ``nats`` are the servers it runs on, one or a cluster (which is reached without proxies).
    """

    def __init__(self, folder: Path, nats: Sequence[NatsServer] = ()) -> None:
        self.folder = folder
        self.nats_servers = tuple(nats) or (NatsServer(folder / "nats"),)
        self.postgres = PostgresServer(folder / "postgres")
        self.services: dict[str, Service] = {}
        self.proxies: dict[str, FlakyProxy] = {}
        self.paths: dict[str, UUID] = {}
        self.places = 0  # monitors times their regions
        self.modules = dict(MODULES)
        self.target_url = ""
        self._target: asyncio.subprocess.Process | None = None
        self._stack = AsyncExitStack()
        self._organisation_id: UUID | None = None

    @property
    def nats(self) -> NatsServer:
        return self.nats_servers[0]

    @property
    def database_url(self) -> str:
        return self.postgres.url

    @property
    def schedulers(self) -> list[Service]:
        return self._of_kind("scheduler")

    @property
    def workers(self) -> list[Service]:
        return self._of_kind("worker")

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._start_servers()
            await self._start_target()
            await self._add_services()
            await self.start(self.services.values())
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def start(self, services: Iterable[Service]) -> None:
        """Start these side by side; return when all are ready."""
        chosen = [service for service in services if not service.is_running]
        await asyncio.gather(*(service.start() for service in chosen))
        await asyncio.gather(*(service.wait_until_ready() for service in chosen))

    async def leader(self) -> Service:
        """The scheduler that leads; waits until there is exactly one."""

        async def single() -> Service | None:
            leads = [await service.metric("tocsin_scheduler_is_leader") for service in self.schedulers]
            return self.schedulers[leads.index(1.0)] if sum(leads) == 1 else None

        leader: Service = await eventually("one scheduler leads", single, within=20)
        return leader

    async def standby(self) -> Service:
        leader = await self.leader()
        return next(service for service in self.schedulers if service is not leader)

    async def create_monitors(
        self, paths: Sequence[str], interval_seconds: int = 5, regions: Collection[str] = ("default",)
    ) -> None:
        """Create a monitor for each path of the target in one transaction, as the API does."""
        service = MonitorService(Sealer([SECRET_KEY]), clock)
        async with Database(self.database_url, application_name="chaos") as database:
            organisation_id = await self._organisation(database)
            async with database.tenant(organisation_id) as session:
                for path in paths:
                    spec = self.monitor_spec(path, interval_seconds, regions)
                    self.paths[path] = await service.create(session, organisation_id, spec)
                    self.places += len(regions)

    def monitor_spec(
        self, path: str, interval_seconds: int, regions: Collection[str] = ("default",)
    ) -> MonitorSpec:
        return MonitorSpec.model_validate(
            {
                "name": path,
                "interval_seconds": interval_seconds,
                "regions": list(regions),
                "timeout_seconds": 4,
                "check": {"kind": "http", "url": f"{self.target_url}{path}"},
            }
        )

    async def requests_since(self, moment_ms: int) -> list[tuple[str, int]]:
        """What the target was asked: paths and arrival times in milliseconds."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            answer = await client.get(f"{self.target_url}/log?{moment_ms}")
        return [(path, arrived) for path, arrived in answer.json()]

    async def answer_with(self, status: int) -> None:
        """Let the target answer every check with this status from now on."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            (await client.get(f"{self.target_url}/set/{status}")).raise_for_status()

    async def _organisation(self, database: Database) -> UUID:
        if self._organisation_id is None:
            organisation = Organisation(name="Chaos", slug="chaos")
            async with database.system() as session:
                session.add(organisation)
                await session.flush()
                self._organisation_id = organisation.id
        return self._organisation_id

    def _of_kind(self, kind: str) -> list[Service]:
        return [service for name, service in self.services.items() if name.startswith(kind)]

    async def _start_servers(self) -> None:
        await self._stack.enter_async_context(self.postgres)
        await asyncio.to_thread(upgrade, self.database_url)
        await asyncio.gather(*(self._stack.enter_async_context(server) for server in self.nats_servers))

    async def _start_target(self) -> None:
        self._target = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.target", stdout=asyncio.subprocess.PIPE
        )
        self._stack.push_async_callback(self._stop_target)
        assert self._target.stdout is not None
        self.target_url = f"http://127.0.0.1:{int(await self._target.stdout.readline())}"

    async def _stop_target(self) -> None:
        assert self._target is not None
        self._target.terminate()
        await self._target.wait()

    async def _add_services(self) -> None:
        await self._add("api", "api")
        for number in (1, 2):
            await self._add(f"scheduler-{number}", "scheduler")
        for number, region in enumerate(("default", "default", "eu"), 1):
            await self._add(f"worker-{number}", "worker", TOCSIN_REGION=region)

    async def _add(self, name: str, kind: str, **settings: str) -> None:
        port = free_port()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TOCSIN_")},
            "TOCSIN_DATABASE_URL": self.database_url,
            "TOCSIN_NATS_URL": await self._nats_url(name),
            **({"TOCSIN_NATS_REPLICAS": str(len(self.nats_servers))} if len(self.nats_servers) > 1 else {}),
            "TOCSIN_SECRET_KEYS": SECRET_KEY,
            "TOCSIN_ALLOW_PRIVATE_TARGETS": "true",
            "TOCSIN_API_PORT" if kind == "api" else "TOCSIN_METRICS_PORT": str(port),
            "TOCSIN_READY_FILE": str(self.folder / f"{name}.ready"),
            **settings,
        }
        service = Service(name, self.modules[kind], port, environment, self.folder / f"{name}.log")
        self.services[name] = service
        self._stack.push_async_callback(service.end)

    async def _nats_url(self, name: str) -> str:
        if len(self.nats_servers) > 1:
            return ",".join(server.url for server in self.nats_servers)
        self.proxies[name] = await self._stack.enter_async_context(FlakyProxy(self.nats.port))
        return self.proxies[name].url
