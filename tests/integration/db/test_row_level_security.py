"""PostgreSQL itself keeps tenants apart, whatever a query forgets."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.sealing import Sealer
from shared.db.base import Base, new_id
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.monitor import MonitorSpec
from shared.services.api_keys import Scope, create_key
from shared.services.monitors import MonitorService
from tests.integration.db.tenants import add_organisation

SPEC = MonitorSpec.model_validate({"name": "Shop", "check": {"kind": "http", "url": "https://shop.example/"}})

TENANT_TABLES = """
    SELECT c.oid::regclass::text AS name, c.relrowsecurity AND c.relforcerowsecurity AS forced,
        c.relispartition AS partition,
        (SELECT count(*) FROM pg_policy AS p WHERE p.polrelid = c.oid) AS policies,
        (SELECT array_agg(r.rolname::text) FROM pg_roles AS r WHERE r.rolname LIKE 'tocsin\\_%'
            AND has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE')) AS readers
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND (c.relname IN ('organisations', 'users')
        OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'organisation_id'))
"""


@dataclass(frozen=True)
class World:
    """Alice has one of everything; bob knows all her ids."""

    alice: UUID
    bob: UUID
    monitor_id: UUID


@pytest.fixture
async def world(database: Database) -> World:
    alice, bob = await add_organisation(database, "alice"), await add_organisation(database, "bob")
    service = MonitorService(Sealer(["k" * 32]), SystemClock())
    async with database.tenant(alice) as session:
        monitor_id = await service.create(session, alice, SPEC)
        await create_key(session, alice, name="a", scopes=[Scope.READ], clock=SystemClock())
    async with database.system() as session:
        await session.execute(
            text("""
            INSERT INTO check_results (monitor_id, scheduled_at, region, organisation_id, revision, status,
                attempts, trigger, detail)
            SELECT id, now(), 'default', organisation_id, 1, 'up', 1, 'schedule', '{}' FROM monitors
        """)
        )
        await session.execute(
            text("""
            INSERT INTO idempotency_keys (organisation_id, key, request_hash) SELECT id, 'k', '' FROM organisations
        """)
        )
    return World(alice, bob, monitor_id)


async def test_every_table_with_a_tenant_forces_row_level_security(database: Database) -> None:
    async with database.system() as session:
        tables = list(await session.execute(text(TENANT_TABLES)))
    for table in tables:
        assert table.forced, f"{table.name} does not force row-level security"
        if table.partition:
            assert table.readers is None, f"{table.name} can be read past its parent's policies"
        else:
            assert table.policies == 2, f"{table.name} needs a policy per role"
    parents = {table.name for table in tables if not table.partition}
    mapped = {t.name for t in Base.metadata.tables.values() if "organisation_id" in t.columns}
    assert parents == mapped | {"organisations", "users"}


async def visible(session: AsyncSession, table: str) -> int:
    column = "id" if table in ("organisations", "users", "monitors") else "organisation_id"
    if table == "outbox":  # the tenant may only write there
        with pytest.raises(DBAPIError, match="permission denied"):
            async with session.begin_nested():
                await session.execute(text("SELECT organisation_id FROM outbox"))
        return 0
    return int(await session.scalar(text(f"SELECT count({column}) FROM {table}")) or 0)


ONE_OF_EACH = (
    "organisations",
    "users",
    "memberships",
    "api_keys",
    "monitors",
    "schedule_periods",
    "monitor_state",
    "check_results",
    "idempotency_keys",
)


async def test_a_tenant_sees_its_own_rows_and_no_others(world: World, database: Database) -> None:
    async with database.tenant(world.alice) as session:
        assert {table: await visible(session, table) for table in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH, 1)
    async with database.tenant(new_id()) as session:
        assert {table: await visible(session, table) for table in ONE_OF_EACH} == dict.fromkeys(ONE_OF_EACH, 0)
        assert await visible(session, "outbox") == 0


async def test_without_a_tenant_nothing_is_visible(world: World, database: Database) -> None:
    async with database.tenant(world.alice) as session:
        for setting in ("''", "NULL"):
            await session.execute(text(f"SELECT set_config('tocsin.organisation_id', {setting}, true)"))
            assert [await visible(session, table) for table in ONE_OF_EACH] == [0] * len(ONE_OF_EACH)


async def test_a_connection_goes_back_to_the_pool_without_a_tenant(world: World, database: Database) -> None:
    async with database.tenant(world.alice) as session:
        used = await session.scalar(text("SELECT pg_backend_pid()"))
    async with database._app.connect() as connection:
        assert await connection.scalar(text("SELECT pg_backend_pid()")) == used
        assert await connection.scalar(text("SELECT current_setting('tocsin.organisation_id', true)")) == ""
        assert await connection.scalar(text("SELECT count(*) FROM monitors")) == 0


async def test_a_tenant_cannot_change_rows_of_another(world: World, database: Database) -> None:
    async with database.tenant(world.bob) as session:
        for statement in (
            "UPDATE monitors SET name = 'stolen'",
            "DELETE FROM monitors",
            "UPDATE monitor_state SET status = 'up'",
            "UPDATE schedule_periods SET ends_at = now()",
            "UPDATE api_keys SET revoked_at = now()",
        ):
            result = await session.execute(text(f"{statement} RETURNING 1"))
            assert result.all() == [], statement


FOREIGN = {
    "monitors": """
        INSERT INTO monitors (id, organisation_id, name, kind, interval_seconds, timeout_seconds, regions, tags,
            retries, retry_delay_seconds, failure_threshold, recovery_threshold, check_spec, revision, created_at,
            updated_at)
        VALUES (gen_random_uuid(), :alice, 'x', 'http', 60, 10, '{}', '{}', 0, 1, 1, 1, '{}', 1, now(), now())
    """,
    "api_keys": """
        INSERT INTO api_keys (id, organisation_id, name, prefix, key_hash, scopes)
        VALUES (gen_random_uuid(), :alice, 'x', 'x', 'x', '{admin}')
    """,
    "schedule_periods": """
        INSERT INTO schedule_periods (id, organisation_id, monitor_id, revision, interval_ms, regions, starts_at)
        VALUES (gen_random_uuid(), :alice, gen_random_uuid(), 1, 5000, '{}', now())
    """,
    "monitor_state": """
        INSERT INTO monitor_state (monitor_id, organisation_id, status_since)
        VALUES (gen_random_uuid(), :alice, now())
    """,
    "outbox": "INSERT INTO outbox (organisation_id, topic, key) VALUES (:alice, 'schedule', 'x')",
    "idempotency_keys": """
        INSERT INTO idempotency_keys (organisation_id, key, request_hash) VALUES (:alice, 'x', '')
    """,
}


@pytest.mark.parametrize("table", FOREIGN)
async def test_a_tenant_cannot_write_rows_in_anothers_name(table: str, world: World, database: Database) -> None:
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.tenant(world.bob) as session:
            await session.execute(text(FOREIGN[table]), {"alice": world.alice})


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT password_hash FROM users",
        "SELECT * FROM check_results_{today}",
        "INSERT INTO check_results SELECT * FROM check_results",
        "UPDATE organisations SET slug = 'x'",
        "UPDATE api_keys SET scopes = '{{admin}}'",
        "DELETE FROM schedule_periods",
        "SELECT tocsin_drop_partitions('2100-01-01')",
        "SELECT tocsin_ensure_partitions('2100-01-01', '2100-01-01')",
        "CREATE TABLE mine (id int)",
    ],
)
async def test_the_application_role_may_not_do_more_than_it_has_to(
    statement: str, world: World, database: Database
) -> None:
    async with database.system() as session:
        today = await session.scalar(text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"))
    with pytest.raises(DBAPIError, match="permission denied"):
        async with database.tenant(world.alice) as session:
            await session.execute(text(statement.format(today=today)))
