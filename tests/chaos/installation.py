"""A whole installation whose every part can be broken: servers, a network per process, and the processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx
from sqlalchemy import select

from shared.contracts.sealing import Sealer
from shared.db.migrate import upgrade
from shared.db.models import Organisation
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.monitor import MonitorSpec
from shared.services.bootstrap import bootstrap
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
ROOT = Path(__file__).parents[2]
clock = SystemClock()


def environment(name: str, folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """What a process reads, and nothing of ours that this process happens to have in its own environment."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("TOCSIN_")},
        "TOCSIN_SECRET_KEYS": SECRET_KEY,
        "TOCSIN_ALLOW_PRIVATE_TARGETS": "true",
        "TOCSIN_READY_FILE": str(folder / f"{name}.ready"),
        "PYTHONPATH": str(ROOT),
        **settings,
    }


class Installation:
    """One API, two schedulers, two workers in ``default`` and one in ``eu``; each reaches NATS by its own proxy.

    ``nats`` are the servers it runs on, one or a cluster (which is reached without proxies). ``entry`` is a module
    that is given the name of the program it is to run.
    """

    def __init__(self, folder: Path, nats: Sequence[NatsServer] = (), *, entry: str | None = None) -> None:
        self.folder = folder
        self._entry = entry
        self.nats_servers = tuple(nats) or (NatsServer(folder / "nats"),)
        self.postgres = PostgresServer(folder / "postgres")
        self.services: dict[str, Service] = {}
        self.proxies: dict[str, FlakyProxy] = {}
        self.paths: dict[str, UUID] = {}
        self.places: set[tuple[UUID, str]] = set()
        self.target_url = ""
        self._target: asyncio.subprocess.Process | None = None
        self._stack = AsyncExitStack()
        self._api_key = ""

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
            await self.start_servers()
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

    async def replace(self, name: str) -> None:
        """A rolling update of one process: the successor is ready before the old one is told to stop."""
        old = self.services[name]
        new = old.successor(free_port(), self.folder)
        await self.start([new])
        self.services[name] = new
        code = await old.terminate()
        assert code == 0, f"{name} ends cleanly on SIGTERM, not with {code}"

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
        self,
        paths: Sequence[str],
        interval_seconds: int = 5,
        regions: Collection[str] = ("default",),
        **options: Any,
    ) -> None:
        """Create a monitor for each path of the target in one transaction, as the API does."""
        service = MonitorService(Sealer([SECRET_KEY]), clock)
        async with Database(self.database_url, application_name="chaos") as database:
            async with database.system() as session:
                [organisation_id] = await session.scalars(select(Organisation.id))
            async with database.tenant(organisation_id) as session:
                for path in paths:
                    spec = self.monitor_spec(path, interval_seconds, regions, **options)
                    self.paths[path] = await service.create(session, organisation_id, spec)
                    self.places |= {(self.paths[path], region) for region in regions}

    def monitor_spec(
        self, path: str, interval_seconds: int, regions: Collection[str] = ("default",), **options: Any
    ) -> MonitorSpec:
        return MonitorSpec.model_validate(
            {
                "name": path,
                "interval_seconds": interval_seconds,
                "regions": list(regions),
                "timeout_seconds": 4,
                "check": {"kind": "http", "url": f"{self.target_url}{path}"},
                **options,
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

    async def post_monitor(self, path: str, interval_seconds: int) -> None:
        """Create a monitor over REST."""
        spec = self.monitor_spec(path, interval_seconds).model_dump(mode="json")
        async with self._client() as client:
            answer = (await client.post("/v1/monitors", json=spec)).raise_for_status().json()
        self.paths[path] = UUID(answer["id"])

    async def monitor(self, monitor_id: UUID) -> dict[str, Any]:
        """A monitor as REST shows it."""
        async with self._client() as client:
            answer: dict[str, Any] = (await client.get(f"/v1/monitors/{monitor_id}")).raise_for_status().json()
        return answer

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self._api_key}"}
        url = f"http://127.0.0.1:{self.services['api'].port}"
        return httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=10)

    def _of_kind(self, kind: str) -> list[Service]:
        return [service for name, service in self.services.items() if name.startswith(kind)]

    async def start_servers(self) -> None:
        await self._stack.enter_async_context(self.postgres)
        await asyncio.to_thread(upgrade, self.database_url)
        async with Database(self.database_url, application_name="chaos") as database:
            credentials = await bootstrap(database, clock)
            assert credentials, "the database is new"
            self._api_key = credentials.api_key
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
        own = {
            "TOCSIN_DATABASE_URL": self.database_url,
            "TOCSIN_NATS_URL": await self._nats_url(name),
            "TOCSIN_NATS_REPLICAS": str(len(self.nats_servers)),
            **settings,
        }
        program = (self._entry, MODULES[kind]) if self._entry else (MODULES[kind],)
        variables = environment(name, self.folder, own)
        self.services[name] = Service(name, program, free_port(), variables, self.folder / f"{name}.log")
        self._stack.push_async_callback(self._end, name)

    async def _end(self, name: str) -> None:
        await self.services[name].end()

    async def _nats_url(self, name: str) -> str:
        if len(self.nats_servers) > 1:
            return ",".join(server.url for server in self.nats_servers)
        self.proxies[name] = await self._stack.enter_async_context(FlakyProxy(self.nats.port))
        return self.proxies[name].url
