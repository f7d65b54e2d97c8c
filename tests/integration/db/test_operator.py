"""Which organisation operates the installation: the oldest one, and there is never a second."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from alembic import command

from shared.db.migrate import configuration, upgrade
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.services.bootstrap import bootstrap
from tests.integration.db.tenants import add_organisation

_ORGANISATION = """
    INSERT INTO organisations (id, name, slug, created_at) VALUES (gen_random_uuid(), $1, $1, $2::text::timestamptz)
"""


async def operators(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET ROLE tocsin_system")
        return [row["slug"] for row in await connection.fetch("SELECT slug FROM organisations WHERE is_operator")]
    finally:
        await connection.close()


async def test_the_oldest_organisation_of_an_older_release_becomes_the_operator(empty_database_url: str) -> None:
    await asyncio.to_thread(upgrade, empty_database_url, None, "0001")
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("SET ROLE tocsin_system")
    for name, since in (("younger", "2026-02-01Z"), ("oldest", "2026-01-01Z")):
        await connection.execute(_ORGANISATION, name, since)
    await connection.close()
    await asyncio.to_thread(upgrade, empty_database_url, None, "0002")
    assert await operators(empty_database_url) == ["oldest"]
    await asyncio.to_thread(command.downgrade, configuration(empty_database_url), "0001")
    await asyncio.to_thread(upgrade, empty_database_url, None, "0002")
    assert await operators(empty_database_url) == ["oldest"]


async def test_the_first_organisation_is_the_operator_and_no_other_becomes_it(
    database: Database, database_url: str
) -> None:
    await bootstrap(database, SystemClock())
    await add_organisation(database, "second")
    assert await operators(database_url) == ["default"]
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET ROLE tocsin_system")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("UPDATE organisations SET is_operator = true")
    await connection.close()
