"""``tocsin doctor``: what it says of a real database, and of input it can't use."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from shared.db.session import Database
from tests.integration.path.conftest import make_tenant


async def doctor(*words: str, url: str | None = None, folder: Path | None = None) -> tuple[int | None, str]:
    environment = {name: value for name, value in os.environ.items() if name != "TOCSIN_DATABASE_URL"}
    if url:
        environment["TOCSIN_DATABASE_URL"] = url
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "doctor", *words, stdout=pipe, stderr=pipe, env=environment, cwd=folder
    )
    output, errors = await process.communicate()
    return process.returncode, (output + errors).decode()


async def test_lost_slots_are_printed_one_by_one(database: Database, database_url: str) -> None:
    monitor_id = await (await make_tenant(database)).create(interval_seconds=10)
    assert await doctor("--slots", url=database_url) == (
        0,
        "0 slots were due and had their time; 0 have no record\n",
    )
    async with database.system() as session:
        await session.execute(text("UPDATE schedule_periods SET starts_at = now() - interval '10 minutes'"))
    code, output = await doctor("--slots", "--since", "1h", url=database_url)
    lost = [line for line in output.splitlines() if line.endswith(f"default  {monitor_id}  nothing is stored")]
    assert code == 1
    assert len(lost) in range(46, 51), output


@pytest.mark.parametrize(
    ("words", "url", "said"),
    [
        (("--slots", "--since", "soon"), None, "write a number and s, m, h or d"),
        (("--slots",), None, "set TOCSIN_DATABASE_URL, or name the --data-dir"),
        (("--slots",), "mysql://x", "postgresql://"),
        (("--slots",), "postgresql://tocsin@127.0.0.1:1/tocsin", "127.0.0.1"),
        ((), None, "--slots compares due slots with results"),
    ],
)
async def test_what_can_not_be_used_gets_one_line(
    tmp_path: Path, words: tuple[str, ...], url: str | None, said: str
) -> None:
    code, output = await doctor(*words, url=url, folder=tmp_path)
    assert code == 2
    assert said in output
    assert len(output.strip().splitlines()) == 1
