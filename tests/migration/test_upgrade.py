"""An upgrade from every earlier revision keeps what is stored, and the previous release works on the new schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from alembic import command
from alembic.script import ScriptDirectory

from shared.db.errors import MigrationError
from shared.db.migrate import Patience, configuration, upgrade
from shared.db.session import Database
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import eventually
from tests.migration.first_release import FirstRelease
from tests.migration.newer_rows import fill

_SCRIPTS = ScriptDirectory.from_config(configuration("postgresql://nowhere/none"))
REVISIONS = [script.revision for script in reversed(list(_SCRIPTS.walk_revisions()))]
IMPATIENT = Patience(lock=0.2, attempts=3, pause=0.05)
WAITING = "SELECT 1 FROM pg_locks WHERE relation = 'alembic_version'::regclass AND NOT granted"

COLUMNS = """
    SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname <> 'alembic_version' AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""

Columns = dict[str, list[str]]
Content = dict[str, list[str]]


@asynccontextmanager
async def past_every_policy(postgres: PostgresServer, url: str) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's session in that database."""
    name = url.partition("@/")[2].partition("?")[0]
    superuser = await asyncpg.connect(postgres.superuser_url.replace("/tocsin?", f"/{name}?"))
    try:
        yield superuser
    finally:
        await superuser.close()


async def columns(superuser: asyncpg.Connection) -> Columns:
    """Every table of this revision with its columns."""
    found: Columns = {}
    for table, column in await superuser.fetch(COLUMNS):
        found.setdefault(table, []).append(column)
    return found


async def content(superuser: asyncpg.Connection, wanted: Columns) -> Content:
    """All rows of these columns, as text."""
    rows = {}
    for table, names in wanted.items():
        found = await superuser.fetch(f"SELECT ROW({', '.join(names)})::text FROM {table}")
        rows[table] = sorted(row[0] for row in found)
    return rows


async def bring_to(url: str, revision: str = "head") -> None:
    await asyncio.to_thread(upgrade, url, None, revision)


async def use(url: str) -> None:
    async with Database(url, application_name="release 0.1.0") as database:
        await FirstRelease(database).use()


@pytest.mark.parametrize("revision", REVISIONS[:-1])
async def test_an_upgrade_keeps_every_row(postgres: PostgresServer, empty_url: str, revision: str) -> None:
    await bring_to(empty_url, revision)
    for _ in range(2):
        await use(empty_url)
    async with past_every_policy(postgres, empty_url) as superuser:
        known = await columns(superuser)
        await fill(superuser, known.keys())
        before = await content(superuser, known)
        assert [table for table, rows in before.items() if not rows] == [], "a table without rows shows nothing"
        await bring_to(empty_url)
        assert await content(superuser, known) == before
    await asyncio.to_thread(command.check, configuration(empty_url))


async def test_the_first_release_works_on_the_newest_schema(empty_url: str) -> None:
    await bring_to(empty_url)
    await use(empty_url)


async def test_the_last_revision_can_be_taken_back_with_data(postgres: PostgresServer, empty_url: str) -> None:
    await bring_to(empty_url, REVISIONS[-2])
    async with past_every_policy(postgres, empty_url) as superuser:
        known = await columns(superuser)
        await bring_to(empty_url)
        await use(empty_url)
        await fill(superuser, (await columns(superuser)).keys())
        before = await content(superuser, known)
        await asyncio.to_thread(command.downgrade, configuration(empty_url), "-1")
        assert await content(superuser, known) == before
    await use(empty_url)
    await bring_to(empty_url)


async def test_results_are_stored_while_the_schema_changes(empty_url: str) -> None:
    await bring_to(empty_url, REVISIONS[0])
    stop = asyncio.Event()
    async with Database(empty_url, application_name="release 0.1.0") as database:
        release = FirstRelease(database)
        await release.sign_up()
        for monitor in release.monitors:
            await release.create(monitor)
        working = asyncio.create_task(release.work_on(stop))
        await bring_to(empty_url)
        stop.set()
        stored, slowest = await working
    assert stored > 0
    # A batch may wait behind a statement that waits for a lock, and then for the revision itself, which takes a
    # machine that is busy with other things several times its usual half a second.
    assert slowest < Patience().lock + 10


@asynccontextmanager
async def held(url: str, statement: str) -> AsyncIterator[asyncpg.Connection]:
    """Another session in the middle of its transaction."""
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(statement)
            yield other
    finally:
        await other.close()


async def test_a_table_in_use_is_tried_again_and_then_named(empty_url: str) -> None:
    await bring_to(empty_url, REVISIONS[0])
    lines: list[str] = []
    async with held(empty_url, "LOCK TABLE alembic_version IN SHARE MODE"):
        with pytest.raises(MigrationError, match=r"a table is in use and was not free within 0.2 s, 3 times"):
            await asyncio.to_thread(upgrade, empty_url, lines.append, "head", IMPATIENT)
    assert lines == [f"a table is in use: trying again, attempt {n} of 3" for n in (2, 3)]


async def test_a_revision_that_waits_for_one_that_waits_for_it_is_tried_again(
    postgres: PostgresServer, empty_url: str
) -> None:
    await bring_to(empty_url, "0002")
    lines: list[str] = []
    async with past_every_policy(postgres, empty_url) as other:
        await other.execute("SET deadlock_timeout = '60s'")  # or it might be the one that is refused
        async with other.transaction():
            await other.execute("LOCK TABLE alembic_version IN SHARE MODE")
            patience = Patience(pause=0.05)
            migrating = asyncio.create_task(asyncio.to_thread(upgrade, empty_url, lines.append, "0003", patience))
            await eventually("the revision waits", lambda: other.fetch(WAITING))
            await other.fetch("SELECT id FROM monitors")
        await migrating
    assert lines[0] == "a table is in use: trying again, attempt 2 of 6"
    assert lines[-1].startswith("applied 0003")


async def test_a_table_that_becomes_free_in_time_is_migrated(empty_url: str) -> None:
    await bring_to(empty_url, REVISIONS[0])
    lines: list[str] = []
    patience = Patience(lock=0.2, attempts=50, pause=0.05)
    async with held(empty_url, "LOCK TABLE alembic_version IN SHARE MODE"):
        migrating = asyncio.create_task(asyncio.to_thread(upgrade, empty_url, lines.append, "head", patience))
        await eventually("the first failed attempt", lambda: asyncio.sleep(0, lines))
    await migrating
    assert lines[-1].startswith(f"applied {REVISIONS[-1]}")


async def test_another_migrator_is_waited_for_and_then_named(empty_url: str) -> None:
    async with held(empty_url, "SELECT pg_advisory_lock(7226001)"):
        with pytest.raises(MigrationError, match=r"the wait for another migrator, took longer than 0.2 s"):
            await asyncio.to_thread(upgrade, empty_url, None, "head", Patience(statement=0.2))
