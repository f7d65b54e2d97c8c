"""The PostgreSQL that other tests run on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from shared.testing.postgres import PostgresServer


async def fetch(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_it_gives_the_application_and_the_superuser_a_way_in(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as server:
        assert await fetch(server.url, "SELECT current_setting('is_superuser')") == "off"
        assert await fetch(server.superuser_url, "SELECT current_setting('is_superuser')") == "on"


async def test_committed_data_survive_a_restart_and_a_kill(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as server:
        url = server.url
        await fetch(url, "CREATE TABLE kept AS SELECT 7 AS number")
        await server.restart()
        assert await fetch(url, "SELECT number FROM kept") == 7
        await server.kill()
        await server.start()
        assert await fetch(url, "SELECT number FROM kept") == 7


async def test_a_frozen_server_answers_again_when_it_thaws(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as server:
        connection = await asyncpg.connect(server.url)
        server.freeze()
        answer = asyncio.create_task(connection.fetchval("SELECT 1"))
        done, _ = await asyncio.wait([answer], timeout=0.3)
        assert not done
        server.thaw()
        assert await answer == 1
        await connection.close()


async def test_a_frozen_server_does_not_outlive_its_block(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as server:
        server.freeze()


async def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as server:
        await server.stop()
        (tmp_path / "postgres" / "data" / "postgresql.auto.conf").write_text("nonsense = 1\n")
        with pytest.raises(RuntimeError, match="nonsense"):
            await server.start()
