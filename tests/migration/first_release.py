"""What release 0.1.0 says to the database, word for word: recorded once, and never brought up to date.

While a release rolls out, processes of the previous one work on the new schema.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import CursorResult, Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime

COLUMNS = {
    "organisations": "id, name, slug, created_at",
    "users": "id, email, name, password_hash, created_at",
    "memberships": "organisation_id, user_id, role, created_at",
    "api_keys": "id, organisation_id, name, prefix, key_hash, scopes, created_by, created_at, last_used_at, "
    "expires_at, revoked_at",
    "monitors": "id, organisation_id, name, kind, interval_seconds, timeout_seconds, regions, tags, retries, "
    "retry_delay_seconds, failure_threshold, recovery_threshold, check_spec, revision, paused_at, created_at, "
    "updated_at",
    "schedule_periods": "id, organisation_id, monitor_id, revision, interval_ms, regions, starts_at, ends_at",
    "monitor_state": "monitor_id, organisation_id, status, status_since, last_slot_at, consecutive_failures, "
    "consecutive_successes, last_result, updated_at",
    "check_results": "monitor_id, scheduled_at, region, organisation_id, started_at, revision, status, attempts, "
    "error_kind, error_message, total_ms, trigger, detail, stored_at",
    "outbox": "id, organisation_id, topic, key, payload, created_at",
    "idempotency_keys": "organisation_id, key, request_hash, status_code, body, created_at",
}
"""Every table of its schema with its columns."""

ADD_ORGANISATION = "INSERT INTO organisations (id, name, slug) VALUES (:id, :name, :slug) RETURNING created_at"
ADD_USER = "INSERT INTO users (id, email, name, password_hash) VALUES (:id, :email, 'Owner', 'scrypt$1')"
ADD_MEMBERSHIP = "INSERT INTO memberships (organisation_id, user_id, role) VALUES (:organisation, :user, 'owner')"
ADD_KEY = """
    INSERT INTO api_keys (id, organisation_id, name, prefix, key_hash, scopes, created_by, created_at, last_used_at,
        expires_at, revoked_at)
    VALUES (:id, :organisation, 'First', 'tcs_abcdef', :hash, '{read,write,admin}', :user, :now, NULL, NULL, NULL)
"""
FIND_KEY = f"SELECT {COLUMNS['api_keys']} FROM api_keys WHERE key_hash = :hash"
TOUCH_KEY = """
    UPDATE api_keys SET last_used_at = :now
    WHERE id = :id AND (last_used_at IS NULL OR last_used_at < CAST(:now AS timestamptz) - interval '1 minute')
"""
ADD_MONITOR = """
    INSERT INTO monitors (id, organisation_id, name, kind, interval_seconds, timeout_seconds, regions, tags,
        retries, retry_delay_seconds, failure_threshold, recovery_threshold, check_spec, revision, paused_at,
        created_at, updated_at)
    VALUES (:id, :organisation, :name, 'http', 10, 5.0, '{default,eu}', '{"team": "shop"}', 1, 3.0, 1, 1,
        '{"kind": "http", "url": "https://shop.example/"}', 1, NULL, :now, :now)
"""
ADD_STATE = (
    "INSERT INTO monitor_state (monitor_id, organisation_id, status_since) VALUES (:id, :organisation, :now)"
)
ADD_PERIOD = """
    INSERT INTO schedule_periods
        (id, organisation_id, monitor_id, revision, interval_ms, regions, starts_at, ends_at)
    VALUES (:period, :organisation, :id, 1, 10000, '{default,eu}', :now, NULL)
"""
ADD_MESSAGE = """
    INSERT INTO outbox (organisation_id, topic, key, payload)
    VALUES (:organisation, 'schedule', :key, CAST('{"revision": 1}' AS jsonb))
"""
LOCK_MONITOR = f"SELECT {COLUMNS['monitors']} FROM monitors WHERE id = :id FOR UPDATE"
CHANGE_MONITOR = "UPDATE monitors SET name = :name, revision = revision + 1, updated_at = :now WHERE id = :id"
PAUSE_MONITOR = "UPDATE monitors SET paused_at = :now, revision = revision + 1, updated_at = :now WHERE id = :id"
END_PERIOD = (
    "UPDATE schedule_periods SET ends_at = greatest(:now, starts_at) WHERE monitor_id = :id AND ends_at IS NULL"
)
RESUME_MONITOR = "UPDATE monitors SET paused_at = NULL, revision = revision + 1, updated_at = :now WHERE id = :id"
RESUME_STATE = """
    UPDATE monitor_state SET status = 'pending', status_since = :now, consecutive_failures = 0,
        consecutive_successes = 0
    WHERE monitor_id = :id
"""
DELETE_MONITOR = "DELETE FROM monitors WHERE id = :id"
VIEW_MONITOR = """
    SELECT m.id, m.name, m.check_spec, s.status, s.status_since, CAST(s.last_result AS text), p.starts_at
    FROM monitors AS m JOIN monitor_state AS s ON s.monitor_id = m.id
    LEFT OUTER JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
    WHERE m.id = :id
"""
STORE_RESULTS = """
    INSERT INTO check_results AS stored (monitor_id, scheduled_at, region, organisation_id, started_at, revision,
        status, attempts, error_kind, error_message, total_ms, trigger, detail)
    SELECT r.monitor_id, r.scheduled_at, r.region, m.organisation_id, r.started_at, r.revision,
        r.status, r.attempts, r.error_kind, r.error_message, r.total_ms, r.trigger, r.detail::jsonb
    FROM unnest(
        CAST(:monitor_id AS uuid[]), CAST(:scheduled_at AS timestamptz[]), CAST(:region AS text[]),
        CAST(:started_at AS timestamptz[]), CAST(:revision AS bigint[]), CAST(:status AS text[]),
        CAST(:attempts AS bigint[]), CAST(:error_kind AS text[]), CAST(:error_message AS text[]),
        CAST(:total_ms AS float8[]), CAST(:trigger AS text[]), CAST(:detail AS text[])
    ) AS r (monitor_id, scheduled_at, region, started_at, revision, status, attempts, error_kind, error_message,
        total_ms, trigger, detail)
    JOIN monitors AS m ON m.id = r.monitor_id
    ORDER BY r.monitor_id, r.scheduled_at, r.region
    ON CONFLICT (monitor_id, scheduled_at, region) DO UPDATE SET
        started_at = excluded.started_at, revision = excluded.revision, status = excluded.status,
        attempts = excluded.attempts, error_kind = excluded.error_kind, error_message = excluded.error_message,
        total_ms = excluded.total_ms, trigger = excluded.trigger, detail = excluded.detail,
        stored_at = excluded.stored_at
    WHERE stored.status = 'missed' AND excluded.status <> 'missed'
    RETURNING monitor_id, region, scheduled_at
"""
LOCK_STATES = """
    SELECT s.monitor_id, s.organisation_id, m.revision, m.paused_at IS NOT NULL AS paused, m.failure_threshold,
        m.recovery_threshold, s.status, s.status_since, s.last_slot_at, s.consecutive_failures,
        s.consecutive_successes
    FROM monitor_state AS s JOIN monitors AS m ON m.id = s.monitor_id
    WHERE s.monitor_id = ANY(CAST(:monitor_ids AS uuid[]))
    ORDER BY s.monitor_id
    FOR UPDATE OF s
"""
SAVE_STATES = """
    UPDATE monitor_state AS s SET status = u.status, status_since = u.status_since, last_slot_at = u.last_slot_at,
        consecutive_failures = u.failures, consecutive_successes = u.successes,
        last_result = coalesce(u.last_result::jsonb, s.last_result), updated_at = now()
    FROM unnest(
        CAST(:monitor_ids AS uuid[]), CAST(:statuses AS text[]), CAST(:since AS timestamptz[]),
        CAST(:slots AS timestamptz[]), CAST(:failures AS bigint[]), CAST(:successes AS bigint[]),
        CAST(:last_results AS text[])
    ) AS u (monitor_id, status, status_since, last_slot_at, failures, successes, last_result)
    WHERE s.monitor_id = u.monitor_id
"""
LIST_RESULTS = """
    SELECT scheduled_at, region, started_at, status, attempts, error_kind, error_message, total_ms, trigger,
        CAST(detail AS text)
    FROM check_results WHERE monitor_id = :id AND scheduled_at >= :since
    ORDER BY scheduled_at DESC, region DESC LIMIT 100
"""
RELAY_LOCK = "SELECT pg_try_advisory_xact_lock(7226004)"
TAKE_MESSAGES = """
    SELECT id, organisation_id, topic, key, payload, created_at FROM outbox
    WHERE topic = 'schedule' ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED
"""
DELETE_MESSAGES = "DELETE FROM outbox WHERE id = ANY(CAST(:ids AS bigint[]))"
ACTIVE_SCHEDULES = """
    SELECT m.id, m.organisation_id, m.revision, m.interval_seconds, p.starts_at, m.regions, m.check_spec::text,
        m.timeout_seconds, m.retries, m.retry_delay_seconds
    FROM monitors AS m JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
    WHERE m.id = ANY(CAST(:monitor_ids AS uuid[]))
"""
REVISIONS = "SELECT id, revision FROM monitors WHERE paused_at IS NULL"
QUEUE_SCHEDULES = """
    INSERT INTO outbox (organisation_id, topic, key)
    SELECT coalesce(
        (SELECT organisation_id FROM schedule_periods AS p WHERE p.monitor_id = wanted.id LIMIT 1),
        '00000000-0000-0000-0000-000000000000'
    ), 'schedule', wanted.id::text
    FROM unnest(CAST(:monitor_ids AS uuid[])) AS wanted (id)
"""
PERIODS = """
    SELECT p.monitor_id, p.interval_ms, p.starts_at, p.regions, p.ends_at
    FROM schedule_periods AS p JOIN monitors AS m ON m.id = p.monitor_id
    WHERE p.ends_at IS NULL OR p.ends_at > :since
"""
COUNTS = """
    SELECT r.monitor_id, r.region, count(*) FROM check_results AS r
    WHERE r.scheduled_at > :since AND r.trigger = 'schedule' GROUP BY 1, 2
"""
SIGHT = """
    SELECT count(*),
        count(*) FILTER (WHERE greatest(p.starts_at, s.last_slot_at)
            < now() - 3 * m.interval_seconds * interval '1 second' - interval '30 seconds')
    FROM monitors AS m
    JOIN monitor_state AS s ON s.monitor_id = m.id
    JOIN schedule_periods AS p ON p.monitor_id = m.id AND p.ends_at IS NULL
    WHERE m.paused_at IS NULL
"""
REGIONS = "SELECT DISTINCT unnest(regions) FROM monitors WHERE paused_at IS NULL"
PARTITIONS = "SELECT tocsin_ensure_partitions(current_date, current_date + 8)"
CLAIM_ANSWER = """
    INSERT INTO idempotency_keys AS k (organisation_id, key, request_hash, created_at)
    VALUES (:organisation, 'key', :hash, :now)
    ON CONFLICT (organisation_id, key) DO UPDATE SET request_hash = excluded.request_hash, status_code = NULL,
        body = NULL, created_at = excluded.created_at
    WHERE k.created_at < excluded.created_at - CASE WHEN k.status_code IS NULL THEN interval '10 minutes'
        ELSE interval '1 day' END
    RETURNING key
"""
ANSWER = "UPDATE idempotency_keys SET status_code = 201, body = :hash WHERE key = 'key'"
PURGE_ANSWERS = "DELETE FROM idempotency_keys WHERE created_at < :since"


class FirstRelease:
    """An API process and a recorder of release 0.1.0, as far as PostgreSQL sees them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.organisation = new_id()
        self.monitors = [new_id() for _ in range(3)]
        self._now = to_datetime(SystemClock().now_ms()).replace(microsecond=0)

    async def use(self) -> None:
        """Everything that it ever does, once; raises what PostgreSQL refuses."""
        await self.sign_up()
        for monitor in self.monitors:
            await self.create(monitor)
        await self.record(self._now)
        await self.relay()
        await self.edit()
        await self.look_after()

    async def sign_up(self) -> None:
        user = new_id()
        values = {
            "organisation": self.organisation,
            "user": user,
            "now": self._now,
            "hash": self.organisation.bytes,
        }
        async with self._database.system() as session:
            name = {"id": self.organisation, "name": "Acme", "slug": f"acme-{self.organisation}"}
            await run(session, ADD_ORGANISATION, name)
            await run(session, ADD_USER, {"id": user, "email": f"{user}@acme.test"})
            await run(session, ADD_MEMBERSHIP, values)
            await run(session, ADD_KEY, {"id": new_id(), **values})
            [key] = await run(session, FIND_KEY, values)
            await run(session, TOUCH_KEY, {"id": key.id, "now": self._now})
        async with self._database.tenant(self.organisation) as session:
            assert await run(session, CLAIM_ANSWER, values)
            await run(session, ANSWER, values)

    async def create(self, monitor: UUID) -> None:
        values = {"id": monitor, "organisation": self.organisation, "now": self._now, "name": "Shop"}
        async with self._database.tenant(self.organisation) as session:
            await run(session, ADD_MONITOR, values)
            await run(session, ADD_STATE, values)
            await run(session, ADD_PERIOD, {**values, "period": new_id()})
            await run(session, ADD_MESSAGE, {**values, "key": str(monitor)})

    async def record(self, at: datetime) -> int:
        """One batch: a result of each monitor in two regions, and the states; answers how many were new."""
        rows = [
            {
                "monitor_id": monitor,
                "scheduled_at": at,
                "region": region,
                "started_at": at,
                "revision": 1,
                "status": "down",
                "attempts": 2,
                "error_kind": "connect_refused",
                "error_message": "127.0.0.1:1 refused the connection",
                "total_ms": 2.5,
                "trigger": "schedule",
                "detail": '{"attempts": []}',
            }
            for monitor in self.monitors
            for region in ("default", "eu")
        ]
        async with self._database.system() as session:
            stored = await run(session, STORE_RESULTS, {name: [row[name] for row in rows] for name in rows[0]})
            states = await run(session, LOCK_STATES, {"monitor_ids": self.monitors})
            await run(
                session,
                SAVE_STATES,
                {
                    "monitor_ids": [state.monitor_id for state in states],
                    "statuses": ["down" for _ in states],
                    "since": [at for _ in states],
                    "slots": [at for _ in states],
                    "failures": [state.consecutive_failures + 1 for state in states],
                    "successes": [0 for _ in states],
                    "last_results": ['{"status": "down"}' for _ in states],
                },
            )
        return len(stored)

    async def relay(self) -> None:
        async with self._database.system() as session:
            await run(session, RELAY_LOCK)
            messages = await run(session, TAKE_MESSAGES)
            assert await run(session, ACTIVE_SCHEDULES, {"monitor_ids": self.monitors})
            await run(session, DELETE_MESSAGES, {"ids": [message.id for message in messages]})
            revisions = await run(session, REVISIONS)
            assert {row.id for row in revisions} >= set(self.monitors)
            await run(session, QUEUE_SCHEDULES, {"monitor_ids": self.monitors[:1]})

    async def edit(self) -> None:
        """Change the first monitor, pause and resume the second, delete the third."""
        first, second, third = self.monitors
        now = self._now + timedelta(seconds=1)
        for monitor, statements in {
            first: (LOCK_MONITOR, CHANGE_MONITOR),
            second: (PAUSE_MONITOR, END_PERIOD, RESUME_MONITOR, ADD_PERIOD, RESUME_STATE),
            third: (END_PERIOD, DELETE_MONITOR),
        }.items():
            values = {"id": monitor, "organisation": self.organisation, "now": now, "name": "Shop, changed"}
            async with self._database.tenant(self.organisation) as session:
                for statement in statements:
                    await run(session, statement, {**values, "period": new_id()})
                await run(session, ADD_MESSAGE, {**values, "key": str(monitor)})
        async with self._database.tenant(self.organisation) as session:
            [view] = await run(session, VIEW_MONITOR, {"id": first})
            assert (view.name, view.status) == ("Shop, changed", "down")
            assert len(await run(session, LIST_RESULTS, {"id": first, "since": self._now})) == 2

    async def look_after(self) -> None:
        since = self._now - timedelta(days=1)
        async with self._database.system() as session:
            assert await run(session, PERIODS, {"since": since})
            assert await run(session, COUNTS, {"since": since})
            assert await run(session, SIGHT)
            assert await run(session, REGIONS)
            await run(session, PARTITIONS)
            await run(session, PURGE_ANSWERS, {"since": since})

    async def work_on(self, stop: asyncio.Event) -> tuple[int, float]:
        """Record batch after batch until told to stop: how many results, and the seconds of the slowest batch."""
        clock, stored, slowest, at = SystemClock(), 0, 0.0, self._now
        while not stop.is_set():
            at += timedelta(seconds=10)
            started = clock.monotonic()
            stored += await self.record(at)
            slowest = max(slowest, clock.monotonic() - started)
        return stored, slowest


async def run(session: AsyncSession, statement: str, values: dict[str, Any] | None = None) -> list[Row[Any]]:
    """The rows of a statement, none for one that answers none."""
    words = {name: value for name, value in (values or {}).items() if f":{name}" in statement}
    result = await session.execute(text(statement), words)
    return list(result) if isinstance(result, CursorResult) and result.returns_rows else []
