"""Checks of PostgreSQL and what is stored in it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

from shared.contracts.sealing import Sealer, SealingError
from shared.db.base import SCHEMA_REVISION
from shared.db.errors import DatabaseUnusableError
from shared.db.repositories import inspection
from shared.db.repositories import jobs as job_states
from shared.db.session import Database
from shared.domain.clock import Clock, to_datetime, to_milliseconds
from shared.jobs.silence import silence_of
from shared.services.doctor.clocks import compared
from shared.services.doctor.findings import Checks, Finding, Severity
from shared.services.housekeeping import DAYS_AHEAD
from shared.services.platform_jobs import WorkerJobs

# The relay polls every two seconds, and what waits for a channel has a task of its own within a minute.
STUCK_OUTBOX_SECONDS: Final = 60.0


async def usable(database: Database) -> list[Finding]:
    """What every process of ours asks at its start, so the same words; nothing else can be asked before."""
    try:
        await database.verify()
    except DatabaseUnusableError as error:
        return [Finding(error.problem, error.mend)]
    return []


def database_checks(database: Database, sealer: Sealer | None, clock: Clock) -> Checks:
    """What can be asked once the database is ``usable``."""
    return {
        "schema": partial(schema, database),
        "durability of PostgreSQL": partial(durability, database),
        "clock against PostgreSQL": partial(clock_skew, database, clock),
        "row-level security": partial(row_level_security, database),
        "partitions": partial(partitions, database, clock),
        "outbox": partial(outbox, database, clock),
        "sealed secrets": partial(sealed_secrets, database, sealer),
        "jobs": partial(jobs, database, clock),
    }


async def schema(database: Database) -> list[Finding]:
    async with database.system() as session:
        revision = (await inspection.server_facts(session)).revision
    if revision <= SCHEMA_REVISION:
        return []
    return [
        Finding(
            f"the schema is at {revision}, this release knows {SCHEMA_REVISION}",
            "it works, meant for the time of an upgrade: bring every process to the newer release",
            Severity.WARNING,
        )
    ]


async def durability(database: Database) -> list[Finding]:
    async with database.system() as session:
        facts = await inspection.server_facts(session)
    found = []
    if facts.is_standby:
        found.append(
            Finding("this server is a standby and takes no writes", "set TOCSIN_DATABASE_URL to the primary")
        )
    if facts.unsafe:
        settings = ", ".join(facts.unsafe)
        found.append(
            Finding(
                f"{settings} off: a power cut may take results that were committed",
                f"turn on {settings} in postgresql.conf",
                Severity.WARNING,
            )
        )
    return found


async def clock_skew(database: Database, clock: Clock) -> list[Finding]:
    async with database.system() as session:
        await inspection.server_facts(session)  # the first query makes the connection, which takes its time
        before = clock.now_ms()
        told = (await inspection.server_facts(session)).now
        return compared("PostgreSQL", before, to_milliseconds(told), clock.now_ms())


async def row_level_security(database: Database) -> list[Finding]:
    async with database.system() as session:
        tables = await inspection.open_tables(session)
    return [
        Finding(
            f"table {table} shows each tenant the rows of all",
            f"run ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        )
        for table in tables
    ]


async def partitions(database: Database, clock: Clock) -> list[Finding]:
    """The last of the days ahead is made within the hour after midnight, so it is not asked for."""
    today = to_datetime(clock.now_ms()).date()
    async with database.system() as session:
        existing = await inspection.partition_days(session)
    missing = sorted({today + timedelta(days=day) for day in range(DAYS_AHEAD)} - existing)
    if not missing:
        return []
    days = ", ".join(day.isoformat() for day in missing)
    severity = Severity.FAULT if missing[0] <= today + timedelta(days=1) else Severity.WARNING
    return [
        Finding(
            f"results of {days} have no partition to be stored in",
            f"run tocsin jobs run {WorkerJobs.create_partitions.__name__} --force, and see why no worker did it",
            severity,
        )
    ]


async def outbox(database: Database, clock: Clock) -> list[Finding]:
    async with database.system() as session:
        topics = await inspection.waiting_topics(session, STUCK_OUTBOX_SECONDS)
    return [
        Finding(
            f"{topic.messages} messages of topic {topic.topic} were not passed on, the oldest for "
            f"{(clock.now_ms() - to_milliseconds(topic.oldest)) / 1000:.0f} s",
            "start an API process and a worker that reach NATS, or look at the logs of those that run",
        )
        for topic in topics
    ]


async def jobs(database: Database, clock: Clock) -> list[Finding]:
    async with database.system() as session:
        silences = [silence_of(job, clock.now_ms()) for job in await job_states.list_all(session)]
    return [
        Finding(
            f"job {silence.job} has not succeeded since {silence.since:%Y-%m-%d %H:%M} UTC",
            f"read its error with tocsin jobs list, mend that, and run it: tocsin jobs run {silence.job}",
        )
        for silence in silences
        if silence
    ]


async def sealed_secrets(database: Database, sealer: Sealer | None) -> list[Finding]:
    """Nothing is said without keys: that they are not set is a finding of its own."""
    if sealer is None:
        return []
    async with database.system() as session:
        stored = await inspection.sealed_documents(session)
    locked = [sealed for sealed in stored if not _opens(sealer, sealed.document)]
    if not locked:
        return []
    first = f"{locked[0].kind} {locked[0].id}"
    return [
        Finding(
            f"no key opens {len(locked)} of {len(stored)} sealed secrets, as that of {first}",
            "append the key they were sealed with to TOCSIN_SECRET_KEYS",
        )
    ]


def _opens(sealer: Sealer, document: dict[str, Any]) -> bool:
    try:
        sealer.unsealed(document)
    except SealingError:
        return False
    return True
