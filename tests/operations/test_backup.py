"""docs/backup.md, step by step: dump a running installation, restore it beside an empty queue, and go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from shared.embedded.postgres import SUPERUSER, Postgres, installation
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import Tocsin, eventually
from tests.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

TOKEN = "a-secret-that-the-target-demands"
ROLES = (
    "CREATE ROLE tocsin_app NOLOGIN; CREATE ROLE tocsin_system NOLOGIN; GRANT tocsin_app, tocsin_system TO tocsin"
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A target that answers 200 to whoever knows the token, else 401."""
    request = await reader.readuntil(b"\r\n\r\n")
    status = b"200 OK" if f"Bearer {TOKEN}".encode() in request else b"401 Unauthorized"
    writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def program(name: str, *arguments: str) -> None:
    """One of the programs that come with PostgreSQL."""
    code, output = await run(str(installation() / "bin" / name), *arguments)
    assert code == 0, output


@dataclass
class Saved:
    """What is left of an installation: its stopped directory, a dump made while it ran, and what it had stored."""

    data: Path
    dump: Path
    monitor_id: str
    results: list[dict[str, Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def saved(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Saved]:
    folder = tmp_path_factory.mktemp("backup")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    check = {"kind": "http", "url": url, "auth": {"kind": "bearer", "token": TOKEN}}
    dump = folder / "tocsin.dump"
    async with Tocsin(folder / "old", "--schedulers", "1") as old:
        monitor_id = (await old.create_monitor(name="Guarded", interval_seconds=5, check=check))["id"]
        await eventually("results", lambda: is_checked_again(old, monitor_id, []), within=60)
        results = await old.results(monitor_id)
        source = Postgres(old.data / "postgres").url(role=SUPERUSER)
        await program("pg_dump", "--format=custom", f"--file={dump}", source)
    yield Saved(old.data, dump, monitor_id, results)
    server.close()
    await server.wait_closed()


async def is_checked_again(tocsin: Tocsin, monitor_id: str, known: list[dict[str, Any]]) -> bool:
    slots = {result["scheduled_at"] for result in known}
    found = await tocsin.results(monitor_id)
    return any(result["scheduled_at"] not in slots and result["status"] == "up" for result in found)


async def goes_on(new: Tocsin, saved: Saved) -> None:
    """The old key opens the API, the history is there, and checks come up again, for which the seal has to open."""
    restored = await new.results(saved.monitor_id)
    by_slot = {result["scheduled_at"]: result for result in restored}
    assert [by_slot.get(result["scheduled_at"]) for result in saved.results] == saved.results
    await eventually("checks that run again", lambda: is_checked_again(new, saved.monitor_id, restored), within=60)


async def test_a_dump_is_restored_beside_an_empty_queue(tmp_path: Path, saved: Saved) -> None:
    secrets = json.loads((saved.data / "secrets").read_text())
    async with PostgresServer(tmp_path / "server") as server:
        superuser = await asyncpg.connect(server.superuser_url)
        await superuser.execute(ROLES)
        await superuser.close()
        await program("pg_restore", "--exit-on-error", f"--dbname={server.superuser_url}", str(saved.dump))
        environment = {"TOCSIN_DATABASE_URL": server.url, "TOCSIN_SECRET_KEYS": secrets["secret_keys"]}
        new = Tocsin(tmp_path / "new", "--schedulers", "1", environment=environment)
        new.data.mkdir()
        (new.data / "credentials.json").write_bytes((saved.data / "credentials.json").read_bytes())
        async with new:
            await goes_on(new, saved)


async def test_a_stopped_directory_is_its_own_backup(tmp_path: Path, saved: Saved) -> None:
    copying = await asyncio.create_subprocess_exec("cp", "-a", str(saved.data), str(tmp_path / "copy"))
    assert await copying.wait() == 0
    async with Tocsin(tmp_path / "copy", "--schedulers", "1") as copy:
        await goes_on(copy, saved)
