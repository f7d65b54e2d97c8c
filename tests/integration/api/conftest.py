"""The API over a real PostgreSQL, with two tenants; only the desk that reaches workers is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.context import Context
from shared.contracts.sealing import Sealer
from shared.contracts.wire import RunNow, RunNowAnswer
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.result import CheckVerdict, HttpFacts, ResultStatus, Timings
from shared.observability.health import Health
from shared.services.api_keys import Scope, create_key
from tests.integration.db.tenants import add_organisation

SECRET_KEY = "0123456789abcdef0123456789abcdef"


@dataclass
class PlayedDesk:
    """Stands where NATS and a worker would: remembers what was asked, and answers or raises."""

    requests: list[RunNow] = field(default_factory=list)
    error: Exception | None = None

    async def run(self, request: RunNow) -> RunNowAnswer:
        self.requests.append(request)
        if self.error:
            raise self.error
        verdict = CheckVerdict(ResultStatus.UP, timings_ms=Timings(total=3.0), http=HttpFacts(status_code=200))
        return RunNowAnswer(request.region, 1_700_000_000_000, 1_700_000_000_001, verdict)


@dataclass
class Commits:
    """Counts how often the relay would have been woken."""

    count: int = 0

    def __call__(self) -> None:
        self.count += 1


@dataclass(frozen=True)
class Tenant:
    """An organisation and a client that holds a key of it with all scopes."""

    organisation_id: UUID
    client: httpx.AsyncClient

    async def add_monitor(self, **fields: Any) -> dict[str, Any]:
        response = await self.client.post("/v1/monitors", json=monitor(**fields))
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        return created


def monitor(**fields: Any) -> dict[str, Any]:
    """A valid monitor, with some fields changed."""
    check = {"kind": "http", "url": "https://shop.example/health"}
    return {"name": "Shop", "interval_seconds": 60, "check": check, **fields}


@pytest.fixture
def desk() -> PlayedDesk:
    return PlayedDesk()


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def context(database: Database, desk: PlayedDesk, commits: Commits) -> Context:
    return Context(database, Sealer([SECRET_KEY]), SystemClock(), desk, commits)


@pytest.fixture
def app(context: Context) -> FastAPI:
    return create_app(context, Health({"relay": lambda: None}))


@pytest.fixture
async def anonymous(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key; errors of the server come as its answers, as they do over a socket."""
    async with client(app) as anonymous:
        yield anonymous


@pytest.fixture
async def alice(app: FastAPI, database: Database) -> AsyncIterator[Tenant]:
    async with client(app) as alice:
        yield await _tenant(database, "alice", alice)


@pytest.fixture
async def bob(app: FastAPI, database: Database) -> AsyncIterator[Tenant]:
    async with client(app) as bob:
        yield await _tenant(database, "bob", bob)


def client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://tocsin.test")


async def add_key(database: Database, organisation_id: UUID, *scopes: Scope) -> str:
    async with database.tenant(organisation_id) as session:
        _, key = await create_key(session, organisation_id, name="test", scopes=scopes, clock=SystemClock())
    return key


async def _tenant(database: Database, name: str, client: httpx.AsyncClient) -> Tenant:
    organisation_id = await add_organisation(database, name)
    key = await add_key(database, organisation_id, Scope.ADMIN)
    client.headers["Authorization"] = f"Bearer {key}"
    return Tenant(organisation_id, client)
