"""What tells whether a database is fit for its work; for system sessions, and reading only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_SERVER = text("""
    SELECT clock_timestamp() AS now, pg_is_in_recovery() AS is_standby,
        (SELECT array_agg(name ORDER BY name) FROM pg_settings
            WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off') AS unsafe,
        (SELECT max(version_num) FROM alembic_version) AS revision
""")
_OPEN_TABLES = text("""
    SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'organisation_id'
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
    ORDER BY c.relname
""")
_PARTITIONS = text("""
    SELECT to_date(right(c.relname, 8), 'YYYYMMDD') FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'check_results'::regclass AND c.relname ~ '^check_results_[0-9]{8}$'
""")
_WAITING = text("""
    SELECT topic, count(*), min(created_at) FROM outbox
    WHERE created_at < now() - :seconds * interval '1 second' GROUP BY topic ORDER BY topic
""")
# Everything that Sealer ever wrote, as documents of one form.
_SEALED = text("""
    SELECT 'monitor', id, check_spec FROM monitors WHERE strpos(check_spec::text, '$sealed') > 0
    UNION ALL SELECT 'channel', id, config FROM channels WHERE strpos(config::text, '$sealed') > 0
    UNION ALL SELECT 'heartbeat of monitor', monitor_id,
        jsonb_build_object('token', jsonb_build_object('$sealed', token)) FROM heartbeats
""")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``unsafe`` names the settings by which a power cut may take what was committed."""

    now: datetime
    is_standby: bool
    unsafe: list[str]
    revision: str


@dataclass(frozen=True, slots=True)
class WaitingTopic:
    """Messages of a topic that nobody passed on."""

    topic: str
    messages: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class SealedDocument:
    """``kind`` is a word for people."""

    kind: str
    id: UUID
    document: dict[str, Any]


async def server_facts(session: AsyncSession) -> ServerFacts:
    row = (await session.execute(_SERVER)).one()
    return ServerFacts(row.now, row.is_standby, row.unsafe or [], row.revision)


async def open_tables(session: AsyncSession) -> list[str]:
    """Tables of tenants that row-level security does not guard."""
    return list((await session.execute(_OPEN_TABLES)).scalars())


async def partition_days(session: AsyncSession) -> set[date]:
    """The days (UTC) whose results have a place."""
    return set((await session.execute(_PARTITIONS)).scalars())


async def waiting_topics(session: AsyncSession, seconds: float) -> list[WaitingTopic]:
    """What has been in the outbox for longer than ``seconds``."""
    return [WaitingTopic(*row) for row in await session.execute(_WAITING, {"seconds": seconds})]


async def sealed_documents(session: AsyncSession) -> list[SealedDocument]:
    """Whatever holds a sealed secret."""
    return [SealedDocument(*row) for row in await session.execute(_SEALED)]
