"""The embedded PostgreSQL: created, started, found again, and the traps around it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from shared.embedded.errors import EmbeddedServerError
from shared.embedded.exec_child import CAP_DAC_READ_SEARCH
from shared.embedded.postgres import Postgres, version
from tests.integration.embedded.processes import eventually, is_alive, status_field

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another user")


@asynccontextmanager
async def running(postgres: Postgres, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    await postgres.prepare()
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(*postgres.command, stderr=stderr, start_new_session=True)
    try:
        await asyncio.wait_for(postgres.ready(), 60)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            await process.wait()
        postgres.close()


async def query(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def test_the_application_owns_its_database_and_is_no_superuser(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", durable=False)
    async with running(postgres, tmp_path / "log"):
        roles = await query(
            postgres.url(),
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcanlogin FROM pg_roles WHERE rolname = current_user",
        )
        owner = await query(
            postgres.url(), "SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()"
        )
    assert roles == [(False, False, True, True)]
    assert owner == [("tocsin",)]


async def test_sqlalchemy_reads_the_same_url(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", durable=False)
    async with running(postgres, tmp_path / "log"):
        engine = create_async_engine(postgres.url().replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as connection:
            assert (await connection.execute(text("SELECT current_user"))).scalar_one() == "tocsin"
        await engine.dispose()


async def test_it_is_durable_unless_a_test_says_otherwise_and_listens_on_no_port(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres")
    names = ("fsync", "full_page_writes", "synchronous_commit", "listen_addresses", "jit")
    async with running(postgres, tmp_path / "log"):
        values = [await query(postgres.url(), f"SHOW {name}") for name in names]
    assert [value[0][0] for value in values] == ["on", "on", "on", "", "off"]


@as_root
async def test_root_starts_it_as_an_ordinary_user_under_a_folder_closed_to_that_user(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    postgres = Postgres(closed / "postgres", durable=False)
    async with running(postgres, tmp_path / "log") as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert await query(postgres.url(), "SELECT 1") == [(1,)]
    assert status_field(status, "Uid").split() == ["65534"] * 4
    assert int(status_field(status, "CapEff"), 16) == 1 << CAP_DAC_READ_SEARCH
    assert closed.stat().st_mode & 0o777 == 0o700


async def test_only_its_owner_can_reach_the_socket(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", durable=False)
    await postgres.prepare()
    assert postgres.socket_directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("temporary", ["short", "long" * 25], ids=["short place", "long place"])
async def test_a_path_too_long_for_a_socket_gets_a_short_way_in_that_is_removed_again(
    temporary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_path = tmp_path / ("long" * 25)
    long_path.mkdir()
    (folder := tmp_path / temporary).mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    postgres = Postgres(long_path / "postgres", durable=False)
    async with running(postgres, tmp_path / "log"):
        way_in = postgres.socket_directory
        assert await query(postgres.url(), "SELECT 1") == [(1,)]
        of_another_process = Postgres(long_path / "postgres").url()
        assert await query(of_another_process, "SELECT 1") == [(1,)]
    assert way_in.parent.name.startswith("tocsin-")
    assert not way_in.parent.exists()


async def test_a_start_that_was_cut_short_is_made_good(tmp_path: Path) -> None:
    (tmp_path / "postgres" / "data.new").mkdir(parents=True)
    (tmp_path / "postgres" / "data.new" / "PG_VERSION").write_text("18\n")
    postgres = Postgres(tmp_path / "postgres", durable=False)
    async with running(postgres, tmp_path / "log"):
        assert await query(postgres.url(), "SELECT 1") == [(1,)]


async def test_data_survive_a_kill_and_the_stale_mark_does_not_block_the_start(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres")
    async with running(postgres, tmp_path / "log") as process:
        await query(postgres.url(), "CREATE TABLE kept AS SELECT 7 AS number")
        process.kill()
        await process.wait()
    assert (postgres.data / "postmaster.pid").exists()
    async with running(postgres, tmp_path / "log"):
        assert await query(postgres.url(), "SELECT number FROM kept") == [(7,)]


async def test_a_mark_whose_number_another_program_has_by_now_is_forgotten(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", durable=False)
    await postgres.prepare()
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    mark = postgres.data / "postmaster.pid"
    mark.write_text(f"{stranger.pid}\n{postgres.data}\n")
    try:
        await postgres.prepare()
        assert not mark.exists()
        assert is_alive(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_server_of_a_killed_run_is_stopped_before_the_next_one_starts(tmp_path: Path) -> None:
    directory = tmp_path / "postgres"
    async with running(Postgres(directory, durable=False), tmp_path / "log") as orphan:
        await query(Postgres(directory).url(), "CREATE TABLE kept AS SELECT 7 AS number")
        async with running(Postgres(directory, durable=False), tmp_path / "log") as process:
            await eventually(lambda: not is_alive(orphan.pid))
            assert process.pid != orphan.pid
            assert await query(Postgres(directory).url(), "SELECT number FROM kept") == [(7,)]


async def test_what_hinders_the_creation_is_told_in_one_line(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path / "postgres", durable=False)
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "data.new").write_text("in the way")
    with pytest.raises(EmbeddedServerError, match=r"initdb failed: .*data\.new") as caught:
        await postgres.prepare()
    assert "\n" not in str(caught.value)


def test_the_version_is_that_of_the_programs() -> None:
    major, _, minor = version().partition(".")
    assert int(major) >= 18
    assert minor.isdigit()


def test_its_parameters_are_no_shell_words(tmp_path: Path) -> None:
    folder = tmp_path / "a folder; with $(signs)"
    folder.mkdir()
    command = Postgres(folder / "postgres").command
    assert str(folder / "postgres" / "data") in command
    assert subprocess.list2cmdline(command)
