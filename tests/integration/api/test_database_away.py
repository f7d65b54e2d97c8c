"""What a client sees while PostgreSQL is away, and when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.db.migrate import upgrade
from shared.testing.postgres import PostgresServer
from tests.integration.api.conftest import Tenant


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[PostgresServer]:
    """A server of this test alone: it is stopped."""
    async with PostgresServer(tmp_path) as server:
        await asyncio.to_thread(upgrade, server.url)
        yield server


@pytest.fixture
def database_url(postgres: PostgresServer) -> str:
    return postgres.url


async def test_a_restarted_database_is_used_again_by_the_next_request(
    alice: Tenant, postgres: PostgresServer
) -> None:
    assert (await alice.client.get("/v1/monitors")).status_code == 200
    await postgres.restart()
    assert (await alice.client.get("/v1/monitors")).status_code == 200


async def test_without_a_database_requests_are_answered_and_readiness_names_it(
    alice: Tenant, anonymous: Any, postgres: PostgresServer
) -> None:
    await postgres.stop()
    try:
        response = await alice.client.get("/v1/monitors")
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        assert response.headers["Retry-After"]
        ready = await anonymous.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["checks"] == {"database": "PostgreSQL does not answer", "relay": "ok"}
        assert (await anonymous.get("/livez")).status_code == 200
    finally:
        await postgres.start()
    assert (await alice.client.get("/v1/monitors")).status_code == 200
    assert (await anonymous.get("/readyz")).status_code == 200
