"""The schema's history runs forth and back, and ends where the models say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from alembic import command
from alembic.script import ScriptDirectory

from shared.db.base import SCHEMA_REVISION
from shared.db.errors import DatabaseUnusableError, MigrationError
from shared.db.migrate import configuration, main, upgrade
from shared.db.session import Database
from shared.testing.postgres import PostgresServer
from tests.commands import run


async def test_the_models_and_the_migrations_agree(database_url: str) -> None:
    await asyncio.to_thread(command.check, configuration(database_url))


async def test_the_last_revision_can_be_taken_back_and_applied_again(empty_database_url: str) -> None:
    lines: list[str] = []
    await asyncio.to_thread(upgrade, empty_database_url, lines.append)
    await asyncio.to_thread(command.downgrade, configuration(empty_database_url, lines.append), "-1")
    await asyncio.to_thread(upgrade, empty_database_url, lines.append)
    await asyncio.to_thread(upgrade, empty_database_url, lines.append)
    last = SCHEMA_REVISION
    steps = [line.partition(":")[0] for line in lines]
    assert steps[-3:] == [f"applied {last}", f"took back {last}", f"applied {last}"]
    await asyncio.to_thread(command.check, configuration(empty_database_url))


def test_the_code_names_the_newest_revision() -> None:
    scripts = ScriptDirectory.from_config(configuration("postgresql://nowhere/none"))
    assert scripts.get_current_head() == SCHEMA_REVISION


async def test_two_migrators_at_once_exclude_each_other(empty_database_url: str) -> None:
    command_line = (sys.executable, "-c", "from shared.db.migrate import main; raise SystemExit(main())")
    environment = {"TOCSIN_DATABASE_URL": empty_database_url}
    ended = await asyncio.gather(*(run(*command_line, env=environment) for _ in range(3)))
    assert [code for code, _ in ended] == [0, 0, 0]
    assert "".join(output for _, output in ended).count("applied 0001") == 1


async def _migrated_from(url: str, revision: str) -> list[str]:
    """What a migration says of a schema that another release left at ``revision``."""
    await asyncio.to_thread(upgrade, url)
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE alembic_version SET version_num = $1", revision)
    await connection.close()
    lines: list[str] = []
    await asyncio.to_thread(upgrade, url, lines.append)
    return lines


async def test_an_older_release_leaves_a_newer_schema_alone(empty_database_url: str) -> None:
    (line,) = await _migrated_from(empty_database_url, "9999")
    assert line == f"the schema is at 9999, newer than this release needs ({SCHEMA_REVISION}): nothing to do"


async def test_a_schema_that_no_release_made_is_refused_in_one_line(empty_database_url: str) -> None:
    with pytest.raises(MigrationError, match=r"^the revision was not applied: .*'elsewhere'$"):
        await _migrated_from(empty_database_url, "elsewhere")


@asynccontextmanager
async def superuser(postgres: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres.superuser_url.replace("/tocsin?", "/postgres?"))
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_role_that_may_not_create_roles_is_told_what_an_administrator_must_run(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as postgres:
        async with superuser(postgres) as connection:
            await connection.execute("ALTER ROLE tocsin NOCREATEROLE")
            with pytest.raises(MigrationError) as refused:
                await asyncio.to_thread(upgrade, postgres.url)
            message = str(refused.value)
            assert "\n" not in message
            _, _, advice = message.partition("must run once: ")
            assert "GRANT tocsin_app, tocsin_system TO tocsin;" in advice
            await connection.execute(advice)
        await asyncio.to_thread(upgrade, postgres.url)
        async with Database(postgres.url, application_name="tests") as database:
            await database.verify()


async def test_verify_names_the_fault_and_the_mend(empty_database_url: str, database_url: str) -> None:
    async with Database(database_url, application_name="tests") as database:
        await database.verify()
    for url, words in {
        empty_database_url: "run tocsin migrate",
        database_url.replace("/test_", "/nowhere_"): "does not exist",
        "postgresql://tocsin@127.0.0.1:1/tocsin": "check TOCSIN_DATABASE_URL",
    }.items():
        async with Database(url, application_name="tests") as database:
            with pytest.raises(DatabaseUnusableError, match=words) as refused:
                await database.verify()
        assert "\n" not in str(refused.value)
    with pytest.raises(DatabaseUnusableError, match="TOCSIN_DATABASE_URL must look like"):
        Database("mysql://nowhere/none", application_name="tests")


async def test_verify_refuses_a_role_that_bypasses_policies(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as postgres:
        await asyncio.to_thread(upgrade, postgres.url)
        async with superuser(postgres) as connection:
            await connection.execute("ALTER ROLE tocsin_app BYPASSRLS")
        async with Database(postgres.url, application_name="tests") as database:
            with pytest.raises(DatabaseUnusableError, match="bypasses row-level security"):
                await database.verify()


def test_the_command_prints_one_line_when_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://tocsin@127.0.0.1:1/tocsin")
    assert main() == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.delenv("TOCSIN_DATABASE_URL")
    assert main() == 1
    assert "TOCSIN_DATABASE_URL" in capsys.readouterr().err
