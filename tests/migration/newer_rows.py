"""A row of every table that is newer than the first release, every column filled that can be.

A new table needs its row here: the upgrade tests refuse tables without rows.
"""

from __future__ import annotations

from collections.abc import Collection

import asyncpg

ROWS = {
    "jobs": """
        INSERT INTO jobs VALUES ('drop_partitions', 21600, 172800, 'worker', gen_random_uuid(), 2, now(), 7,
            '{"day": "2026-01-02"}', now(), now(), now(), 1500, 'failed', 'RuntimeError: no room', 3, 9, 2, 1, 4)
    """,
    "incidents": """
        INSERT INTO incidents SELECT gen_random_uuid(), m.organisation_id, m.id, 'monitor', 'resolved', 'down',
            'http_status', 'The answer was 500.', now(), now(), now(), now(), 'ada@acme.test', now(), 'recovery', 2,
            gen_random_uuid(), now(), true, true, 'worker-1', 'eu', 14, '{"status": "down"}', '{"status": "up"}',
            gen_random_uuid(), 3, now(), 5
        FROM monitors AS m LIMIT 1
    """,
    "incident_events": """
        INSERT INTO incident_events (organisation_id, incident_id, at, kind, actor, detail)
        SELECT organisation_id, id, now(), 'comment', 'ada@acme.test', '{"text": "It was the switch."}'
        FROM incidents
    """,
    "state_periods": """
        INSERT INTO state_periods (organisation_id, monitor_id, status, starts_at, ends_at)
        SELECT organisation_id, id, 'degraded', now() - interval '1 hour', now() FROM monitors LIMIT 1
    """,
    "worker_beats": """
        INSERT INTO worker_beats (worker, region, at, turned, well, stored_at)
        VALUES ('worker-1', 'eu', now(), 3, 97, now())
    """,
    "channels": """
        INSERT INTO channels SELECT gen_random_uuid(), id, 'Shop', 'webhook', '{"url": "https://hook.example/"}',
            true, '{"title": "{monitor}"}', NULL, now(), 'http_status: 500', now(), now()
        FROM organisations LIMIT 1
    """,
    "alert_policies": """
        INSERT INTO alert_policies
        SELECT gen_random_uuid(), id, 10, '{"name": "At night", "steps": []}', now(), now()
        FROM organisations LIMIT 1
    """,
    "deliveries": """
        INSERT INTO deliveries (id, organisation_id, incident_id, episode, dedupe_key, event, channel_id,
            channel_name, channel_kind, fallback_of, notification, state, attempts, possibly_duplicated,
            status_code, response, error, created_at, claimed_at, not_before, settled_at, queued)
        SELECT gen_random_uuid(), organisation_id, gen_random_uuid(), 1, 'incident/opened/channel', 'opened', id,
            name, kind, gen_random_uuid(), '{"title": "Shop is down"}', 'failed', 6, true, 500, 'oops',
            'http_status', now(), now(), now(), now(), 2
        FROM channels LIMIT 1
    """,
    "heartbeats": """
        INSERT INTO heartbeats
        SELECT id, organisation_id, decode('00ff', 'hex'), 'sealed', '{"runs": []}', now() FROM monitors LIMIT 1
    """,
    "heartbeat_pings": """
        INSERT INTO heartbeat_pings
        SELECT gen_random_uuid(), organisation_id, id, now(), 'fail', 3, 'run-1', 'disk full' FROM monitors LIMIT 1
    """,
    "heartbeat_receivers": "INSERT INTO heartbeat_receivers VALUES (gen_random_uuid(), now(), now())",
    "maintenance_windows": """
        INSERT INTO maintenance_windows SELECT gen_random_uuid(), organisation_id, 'Patch day', ARRAY[id],
            '{"team": "shop"}', false, now(), now(), '{"cron": "0 2 * * 0"}', now(), now(), now()
        FROM monitors LIMIT 1
    """,
    "maintenance_occurrences": """
        INSERT INTO maintenance_occurrences
        SELECT id, now(), now() + interval '1 hour', organisation_id, monitor_ids, tags, all_monitors, 'active'
        FROM maintenance_windows
    """,
    "certificates": """
        INSERT INTO certificates SELECT id, 'ab12', organisation_id, now(), '{"issuer": "Example CA"}',
            '["issuer"]', now(), 'ada@acme.test'
        FROM monitors LIMIT 1
    """,
}
"""By table, in an order that foreign keys allow."""


async def fill(superuser: asyncpg.Connection, tables: Collection[str]) -> None:
    """Add the rows of those tables that this revision has."""
    for table, statement in ROWS.items():
        if table in tables:
            await superuser.execute(statement)
