"""The API on a real socket with a clock that the test moves, and whoever judges beside it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import text

from api.app import create_app
from api.context import Context
from shared.contracts.sealing import Sealer
from shared.db.base import new_id
from shared.db.repositories.heartbeats import note_receiving
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from shared.domain.monitor import MonitorSpec
from shared.observability.health import Health
from shared.services.api_keys import Scope
from shared.services.heartbeats import HeartbeatJudge
from shared.services.monitors import MonitorService
from shared.services.pings import PingDesk
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import SECRET_KEY, PlayedDesk, add_key
from tests.integration.db.tenants import add_organisation


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The application on a free port of loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@dataclass
class Installation:
    """One receiver and one judge that share a clock."""

    database: Database
    clock: FakeClock
    client: httpx.AsyncClient
    judge: HeartbeatJudge
    organisation_id: UUID

    async def add(self, **check: Any) -> dict[str, Any]:
        body = {"name": "Backup", "check": {"kind": "heartbeat", "period_seconds": 3600, **check}}
        answer = await self.client.post("/v1/monitors", json=body)
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    async def read(self, monitor: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/monitors/{monitor['id']}")
        read: dict[str, Any] = answer.json()
        return read

    async def results(self, monitor: dict[str, Any]) -> list[dict[str, Any]]:
        """Oldest first."""
        answer = await self.client.get(f"/v1/monitors/{monitor['id']}/results")
        items: list[dict[str, Any]] = answer.json()["items"]
        return items[::-1]

    async def ping(self, monitor: dict[str, Any], word: str = "", **query: Any) -> None:
        path = monitor["heartbeat"]["ping_path"] + (f"/{word}" if word else "")
        answer = await self.client.get(path, params=query)
        assert (answer.status_code, answer.text) == (200, "OK")

    async def pass_time(self, seconds: float, *, receiving: bool = True) -> None:
        """Time passes, in which pings can be received or not; then everything is judged."""
        if receiving:
            await self.receive_for(seconds)
        else:
            self.clock.advance(seconds)
        await self.judge.judge_once()

    async def receive_for(self, seconds: float) -> None:
        """Time passes in which pings can be received."""
        before = to_datetime(self.clock.now_ms())
        self.clock.advance(seconds)
        async with self.database.system() as session:
            await note_receiving(session, new_id(), before, to_datetime(self.clock.now_ms()))

    async def add_many(self, count: int) -> list[bytes]:
        """Heartbeats with a period of 10 s and deadlines a second apart; answers the hashes of their tokens."""
        service = MonitorService(Sealer([SECRET_KEY]), self.clock)
        async with self.database.tenant(self.organisation_id) as session:
            for number in range(count):
                check = {"kind": "heartbeat", "period_seconds": 10, "grace_seconds": 1 + number % 90}
                spec = MonitorSpec.model_validate({"name": f"Job {number}", "check": check})
                await service.create(session, self.organisation_id, spec)
            return list((await session.execute(text("SELECT token_hash FROM heartbeats"))).scalars())

    async def incidents(self) -> list[Any]:
        async with self.database.system() as session:
            rows = await session.execute(
                text("SELECT state, cause, message, monitor_id FROM incidents ORDER BY id")
            )
            return list(rows)


@pytest.fixture
async def installation(database: Database) -> AsyncIterator[Installation]:
    clock = FakeClock(SystemClock().now_ms())
    desk = PingDesk(database, clock)
    context = Context(database, Sealer([SECRET_KEY]), clock, PlayedDesk(), pings=desk)
    organisation_id = await add_organisation(database, "alice")
    key = await add_key(database, organisation_id, Scope.ADMIN)
    storing = asyncio.create_task(desk.run())
    async with serving(create_app(context, Health({}))) as url:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
            yield Installation(database, clock, client, HeartbeatJudge(database, clock), organisation_id)
    storing.cancel()
    await asyncio.gather(storing, return_exceptions=True)
