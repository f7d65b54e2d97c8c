"""Faults of PostgreSQL and of what it holds, seeded one by one: each is found, with its mend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from shared.contracts.sealing import Sealer
from shared.db.base import SCHEMA_REVISION
from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.services.doctor import database as check
from shared.services.doctor.findings import Finding, examine
from shared.testing.postgres import PostgresServer
from tests.integration.doctor.conftest import Stored

Look = Callable[[Stored], Awaitable[list[Finding]]]
Seed = Callable[[Stored], Awaitable[object]]


async def set_clock(s: Stored) -> None:
    s.clock.off_ms = 90_000


async def lose_key(s: Stored) -> None:
    s.keys = ["another key, as long as it has to be"]


TOMORROW = "to_char((now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD')"
FAULTS: dict[str, tuple[Look, Seed, str, str]] = {
    "schema behind": (
        lambda s: check.usable(s.database),
        lambda s: s.owner("UPDATE alembic_version SET version_num = '0000'"),
        f"the schema is at 0000, this release needs {SCHEMA_REVISION}",
        "tocsin migrate",
    ),
    "schema ahead": (
        lambda s: check.schema(s.database),
        lambda s: s.owner("UPDATE alembic_version SET version_num = '9999'"),
        "the schema is at 9999",
        "newer release",
    ),
    "missing partition": (
        lambda s: check.partitions(s.database, s.clock),
        lambda s: s.owner(f"DO $$ BEGIN EXECUTE 'DROP TABLE check_results_' || {TOMORROW}; END $$"),
        "have no partition to be stored in",
        "run tocsin jobs run create_partitions --force",
    ),
    "table without policies": (
        lambda s: check.row_level_security(s.database),
        lambda s: s.owner("ALTER TABLE monitors NO FORCE ROW LEVEL SECURITY"),
        "table monitors shows each tenant the rows of all",
        "ALTER TABLE monitors ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    ),
    "wrong clock": (
        lambda s: check.clock_skew(s.database, s.clock),
        set_clock,
        " s ahead of that of PostgreSQL",
        "chrony",
    ),
    "stuck outbox": (
        lambda s: check.outbox(s.database, s.clock),
        lambda s: s.sql(
            "INSERT INTO outbox (organisation_id, topic, key, created_at)"
            " SELECT id, 'schedule', 'x', now() - interval '10 minutes' FROM organisations"
        ),
        "1 messages of topic schedule were not passed on, the oldest for 6",
        "start an API process",
    ),
    "lost key": (
        lambda s: check.sealed_secrets(s.database, Sealer(s.keys)),
        lose_key,
        "no key opens 1 of 1 sealed secrets, as that of monitor",
        "append the key they were sealed with to TOCSIN_SECRET_KEYS",
    ),
    "silent job": (
        lambda s: check.jobs(s.database, s.clock),
        lambda s: s.sql(
            "INSERT INTO jobs (name, every_seconds, silence_after_seconds, runs_in, schedule_id, registered_at)"
            " VALUES ('rollups', 60, 300, 'worker', gen_random_uuid(), '2026-01-01 12:00Z')"
        ),
        "job rollups has not succeeded since 2026-01-01 12:00 UTC",
        "tocsin jobs run rollups",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_found_and_its_mend_named(stored: Stored, name: str) -> None:
    look, seed, what, mend = FAULTS[name]
    assert await look(stored) == []
    await seed(stored)
    [finding] = await look(stored)
    assert what in finding.what
    assert mend in finding.mend


async def test_a_role_that_bypasses_policies_is_found(tmp_path: Path) -> None:
    async with PostgresServer(tmp_path) as postgres:
        await asyncio.to_thread(upgrade, postgres.url)
        async with Database(postgres.url, application_name="tests") as database:
            assert await check.usable(database) == []
            superuser = await asyncpg.connect(postgres.superuser_url)
            await superuser.execute("ALTER ROLE tocsin_app BYPASSRLS")
            await superuser.close()
            [finding] = await check.usable(database)
            [durability] = await check.durability(database)
    assert "bypasses row-level security" in finding.what
    assert "ALTER ROLE tocsin_app NOSUPERUSER NOBYPASSRLS" in finding.mend
    assert "fsync, full_page_writes off" in durability.what


async def test_a_check_that_hangs_or_fails_is_a_finding_and_stops_no_other() -> None:
    async def hang() -> list[Finding]:
        await asyncio.sleep(60)
        return []

    async def fail() -> list[Finding]:
        raise OSError("the cable")

    async def good() -> list[Finding]:
        return []

    hung, failed, went_well = await examine({"hang": hang, "fail": fail, "good": good}, seconds=0.05)
    assert "no answer within 0.05 s" in hung.findings[0].what
    assert "the cable" in failed.findings[0].what
    assert went_well.findings == ()
