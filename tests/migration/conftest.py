"""What the tests of migrations share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from shared.testing.postgres import PostgresServer


@pytest.fixture
async def empty_url(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database of this test alone, without a schema."""
    name = f"test_{uuid4().hex}"
    owner = await asyncpg.connect(postgres.superuser_url.replace("/tocsin?", "/postgres?"))
    try:
        await owner.execute(f"CREATE DATABASE {name} OWNER tocsin")
        yield postgres.url.replace("/tocsin?", f"/{name}?")
        await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await owner.close()
