"""Faults of PostgreSQL: checks have to go on meanwhile, and every result has to arrive afterwards."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from shared.domain.clock import to_datetime
from shared.testing.tocsin import eventually
from tests.chaos.installation import Installation, clock

DOWN_SECONDS = 60.0
FREEZE_SECONDS = 15.0
FULL_SECONDS = 20.0
_SPARE_BYTES = 16 * 1024 * 1024
_CANNOT_STORE = "results can't be stored"

_TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_INDEXES = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = $1::text::regclass"


async def kill(chaos: Installation) -> int:
    await chaos.postgres.kill()
    await chaos.postgres.start()
    return clock.now_ms()


async def restart(chaos: Installation) -> int:
    await chaos.postgres.restart()
    return clock.now_ms()


async def take_down(chaos: Installation) -> int:
    begun = clock.now_ms()
    await chaos.postgres.stop()
    await asyncio.sleep(DOWN_SECONDS)
    await chaos.postgres.start()
    return begun


async def freeze(chaos: Installation) -> int:
    begun = clock.now_ms()
    chaos.postgres.freeze()
    await asyncio.sleep(FREEZE_SECONDS)
    chaos.postgres.thaw()
    return begun


async def terminate_connections(chaos: Installation) -> int:
    begun = clock.now_ms()
    async with superuser(chaos) as connection:
        await connection.execute(_TERMINATE)
    return begun


async def fill_disk(chaos: Installation) -> int:
    """Today's results lie on a small disk that is full for a while."""
    if not shutil.which("mount"):
        pytest.skip("needs the right to mount a small disk")
    async with _small_disk(chaos) as disk:
        begun = clock.now_ms()
        await asyncio.to_thread(_fill, disk / "filler")

        async def refused() -> bool:
            logs = [worker.log.read_text()[-20_000:] for worker in chaos.workers]
            return any(_CANNOT_STORE in log and "No space left" in log for log in logs)

        await eventually("a worker can't store results", refused, within=FULL_SECONDS)
        await asyncio.sleep(FULL_SECONDS)
        (disk / "filler").unlink()
    return begun


@asynccontextmanager
async def superuser(chaos: Installation) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(chaos.postgres.superuser_url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _small_disk(chaos: Installation) -> AsyncIterator[Path]:
    """A mounted disk that holds today's partition of the results."""
    disk = Path(f"/tmp/tocsin-small-disk-{chaos.postgres.pid}")
    disk.mkdir()
    async with superuser(chaos) as connection:
        size = await connection.fetchval("SELECT pg_total_relation_size($1::text::regclass)", _partition())
    await _run("mount", "-t", "tmpfs", "-o", f"size={size + _SPARE_BYTES},mode=0777", "tmpfs", str(disk))
    (disk / "space").mkdir()
    try:
        owner = Path(f"/proc/{chaos.postgres.pid}").stat()
        await asyncio.to_thread(shutil.chown, disk / "space", owner.st_uid, owner.st_gid)
        async with superuser(chaos) as connection:
            await connection.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
            await _move_results(connection, "small")
            try:
                yield disk
            finally:
                await _move_results(connection, "pg_default")
                await connection.execute("DROP TABLESPACE small")
    finally:
        await _run("umount", "-l", str(disk))
        disk.rmdir()


async def _move_results(connection: asyncpg.Connection, tablespace: str) -> None:
    partition = _partition()
    await connection.execute(f"ALTER TABLE {partition} SET TABLESPACE {tablespace}")
    for index in await connection.fetch(_INDEXES, partition):
        await connection.execute(f"ALTER INDEX {index[0]} SET TABLESPACE {tablespace}")


def _partition() -> str:
    return f"check_results_{to_datetime(clock.now_ms()):%Y%m%d}"


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        pytest.skip(f"{command[0]} is not allowed here: a full disk can't be played")


def _fill(filler: Path) -> None:
    """Take all that is left, down to the last page."""
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass  # full, as wanted
