"""Real servers for everybody: one PostgreSQL for the whole run, a database and a nats-server for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.testing.nats import NatsServer
from shared.testing.postgres import PostgresServer

TEMPLATE = "tocsin"


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
