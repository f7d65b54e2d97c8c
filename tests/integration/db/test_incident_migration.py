"""What was known before incidents existed is carried over: nothing is judged or told anew because of a release."""

from __future__ import annotations

import asyncio

from alembic import command
from sqlalchemy import text

from shared.db.migrate import configuration, upgrade
from shared.db.repositories.state import lock_states
from shared.db.session import Database
from shared.domain.state import MonitorStatus

BEFORE = (
    "INSERT INTO organisations (id, name, slug) VALUES (gen_random_uuid(), 'acme', 'acme')",
    """
    INSERT INTO monitors (id, organisation_id, name, kind, interval_seconds, timeout_seconds, regions, tags,
        retries, retry_delay_seconds, failure_threshold, recovery_threshold, check_spec, revision, paused_at,
        created_at, updated_at)
    SELECT gen_random_uuid(), o.id, n, 'http', 60, 10, ARRAY['eu'], '{}', 0, 1, 3, 1, '{}', 1,
        CASE WHEN n = 'paused' THEN timestamptz '2027-01-02 00:00:00Z' END, now(), now()
    FROM organisations AS o, unnest(ARRAY['down', 'paused', 'new']) AS n
    """,
    """
    INSERT INTO monitor_state (monitor_id, organisation_id, status, status_since, last_slot_at,
        consecutive_failures)
    SELECT id, organisation_id, CASE name WHEN 'new' THEN 'pending' ELSE 'down' END, '2027-01-01 00:00:00Z',
        CASE WHEN name <> 'new' THEN timestamptz '2027-01-01 00:05:00Z' END, 4
    FROM monitors
    """,
)


async def test_states_are_carried_over_and_back(empty_database_url: str) -> None:
    await asyncio.to_thread(upgrade, empty_database_url, None, "0002")
    async with Database(empty_database_url, application_name="tests") as database:
        async with database.system() as session:
            for statement in BEFORE:
                await session.execute(text(statement))
        await asyncio.to_thread(upgrade, empty_database_url)
        async with database.system() as session:
            names = {row[0]: row[1] for row in await session.execute(text("SELECT id, name FROM monitors"))}
            rows = await lock_states(session, names)
            states = {names[monitor_id]: row.state for monitor_id, row in rows.items()}
            spans = (
                await session.execute(
                    text(
                        "SELECT m.name, p.status, p.starts_at::date::text FROM state_periods AS p"
                        " JOIN monitors AS m ON m.id = p.monitor_id WHERE p.ends_at IS NULL ORDER BY 1"
                    )
                )
            ).all()
        assert states["down"].regions["eu"].status is MonitorStatus.DOWN
        assert (states["down"].consecutive_failures, states["down"].shown) == (4, "down")
        assert (states["paused"].shown, states["new"].regions) == ("paused", {})
        assert [tuple(span) for span in spans] == [
            ("down", "down", "2027-01-01"),
            ("new", "pending", "2027-01-01"),
            ("paused", "paused", "2027-01-02"),
        ]
    await asyncio.to_thread(command.downgrade, configuration(empty_database_url), "0002")
    await asyncio.to_thread(upgrade, empty_database_url)
