"""Real servers for everybody: one PostgreSQL for the whole run, a database and a nats-server for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.testing.nats import NatsServer
from shared.testing.postgres import PostgresServer
from tests import logs

TEMPLATE = "tocsin"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    logs.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        logs.add_logs(item, report)
    return report


# How long an example takes is the machine's affair.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The default renderer draws the local variables of every traceback: seconds of work for a line that nobody reads.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PostgresServer]:
    """PostgreSQL whose own database is migrated and then only copied from."""
    async with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        await asyncio.to_thread(upgrade, server.url)
        yield server


@pytest.fixture
async def database_url(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database of this test alone, built by Alembic and copied in a few milliseconds."""
    name = f"test_{uuid4().hex}"
    owner = await asyncpg.connect(postgres.superuser_url.replace(f"/{TEMPLATE}?", "/postgres?"))
    try:
        await owner.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER tocsin")
        yield postgres.url.replace(f"/{TEMPLATE}?", f"/{name}?")
        await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await owner.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url, application_name="tests") as opened:
        yield opened


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connection(nats: NatsServer) -> AsyncIterator[NatsConnection]:
    """A connection as processes have it, with all streams declared."""
    connected = await connect([nats.url], name="tests", buffer_writes=True)
    await ensure_streams(connected.client.jetstream(timeout=60))  # nobody tries it again here, as processes do
    yield connected
    await connected.close()


@pytest.fixture
async def publisher(connection: NatsConnection) -> AsyncIterator[Publisher]:
    async with Publisher(connection) as running:
        yield running
