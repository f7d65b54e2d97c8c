"""What is asked again and again reads what it answers, not the whole table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories import escalations, heartbeats, incidents, maintenance
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from tests.integration.db.tenants import add_organisation

MANY = 5_000
FEW = 500

_SEED = """
    INSERT INTO monitors (id, organisation_id, name, kind, interval_seconds, timeout_seconds, regions, tags,
            retries, retry_delay_seconds, failure_threshold, recovery_threshold, check_spec, revision, created_at,
            updated_at)
        SELECT md5('monitor ' || n)::uuid, :organisation, 'Shop', 'heartbeat', 60, 10, '{default}', '{}',
            0, 1, 1, 1, '{}', 1, now() - interval '1 day', now() - interval '1 day'
        FROM generate_series(1, :many) AS n;
    INSERT INTO heartbeats (monitor_id, organisation_id, token_hash, token, state, next_deadline_at)
        SELECT id, organisation_id, decode(md5(id::text), 'hex'), 't', '{}', now() + interval '1 hour'
        FROM monitors;
    INSERT INTO heartbeat_pings (id, organisation_id, monitor_id, received_at, signal)
        SELECT gen_random_uuid(), organisation_id, monitor_id, now(), 'success' FROM heartbeats LIMIT 10;
    INSERT INTO incidents (id, organisation_id, monitor_id, kind, state, severity, cause, message, started_at,
            opened_at, last_failure_at, resolved_at)
        SELECT md5('incident ' || id)::uuid, organisation_id, id, 'monitor', 'resolved', 'down', 'timeout', 'x',
            now(), now(), now(), now()
        FROM monitors;
    UPDATE incidents SET state = 'open', resolved_at = NULL
        WHERE id IN (SELECT md5('incident ' || id)::uuid FROM monitors LIMIT 10);
    INSERT INTO outbox (organisation_id, topic, key) SELECT organisation_id, 'schedule', id FROM monitors;
    INSERT INTO outbox (organisation_id, topic, key, payload)
        SELECT organisation_id, 'incident', id, jsonb_build_object('transition', 'opened', 'event_id', 1)
        FROM incidents WHERE state = 'open'
"""
# Counted from whenever this connection last reported.
_READ = text("SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables")
Ask = Callable[[AsyncSession], Awaitable[int]]


@pytest.fixture
async def crowd(database: Database, database_url: str) -> None:
    """A tenant with thousands of monitors, of which a few have something to tell."""
    organisation_id = await add_organisation(database, "alice")
    async with database.system() as session:
        for statement in _SEED.split(";\n"):
            values = {"organisation": organisation_id, "many": MANY}
            wanted = {name: value for name, value in values.items() if f":{name}" in statement}
            await session.execute(text(statement), wanted)
    owner = await asyncpg.connect(database_url)
    await owner.execute("ANALYZE")
    await owner.close()


async def _open_incidents(session: AsyncSession) -> int:
    return len(await incidents.list_views(session, state="open", monitor_id=None, before=None, limit=50))


async def _heartbeats_to_judge(session: AsyncSession) -> int:
    return len(await heartbeats.take(session, to_datetime(SystemClock().now_ms()), limit=500, pings=5000))


async def _edges_of_maintenance(session: AsyncSession) -> int:
    return len(await maintenance.turn(session, to_datetime(SystemClock().now_ms())))


async def _transitions_to_tell(session: AsyncSession) -> int:
    now = to_datetime(SystemClock().now_ms())
    return len(await escalations.take_transitions(session, now, limit=100))


@pytest.mark.parametrize(
    ("ask", "answers"),
    [(_open_incidents, 10), (_heartbeats_to_judge, 10), (_edges_of_maintenance, 0), (_transitions_to_tell, 10)],
    ids=["open incidents", "heartbeats to judge", "edges of maintenance", "transitions to tell"],
)
@pytest.mark.usefixtures("crowd")
async def test_it_reads_little(ask: Ask, answers: int, database: Database) -> None:
    async with database.system() as session:
        before = await session.scalar(_READ)
        assert await ask(session) == answers
        assert await session.scalar(_READ) - before < FEW
