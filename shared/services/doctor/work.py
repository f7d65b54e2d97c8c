"""Checks of the work itself, for which both servers are asked: is it being done?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import UUID

from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from shared.contracts import names
from shared.db.repositories.schedules import active_revisions
from shared.db.repositories.watch import active_regions
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.domain.region import PLATFORM_REGION
from shared.domain.watchdog import Memory, judge
from shared.messaging.bucket_watch import BucketWatch
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject, declared_consumers
from shared.messaging.stream_state import stream_state
from shared.messaging.streams import inspect_consumer
from shared.services.doctor.findings import Checks, Finding, Severity
from shared.services.doctor.queue import as_words
from shared.services.schedules import drift
from shared.services.sight import look

# A change of a monitor is on its way to the bucket for as long as the relay takes to look: not yet drift.
SETTLE_SECONDS: Final = 3.0
# Between two requests a reader has none open for a moment.
LOOKS: Final = 4
LOOK_EVERY_SECONDS: Final = 0.25

_LOOK_AT_API = "look at the log of the API process"
_MENDS: Final = {
    "dispatch": "start a scheduler (tocsin scheduler), or look at the log of the one that runs",
    "beat": "start an API process (tocsin api): it declares the beat",
    "results": "start a worker that records (tocsin worker), or look at the log of the one that runs",
    "tasks": "start a worker that has a database (tocsin worker), or look at the log of the one that runs",
    "monitors": "see which slots are missing with tocsin doctor --slots, and look at the logs of the workers",
}


def work_checks(database: Database, connection: NatsConnection, clock: Clock) -> Checks:
    """What can be asked once both servers are fit."""
    return {
        "schedules": partial(schedules, database, connection, clock),
        "scheduler, results, tasks, monitors": partial(work, database, connection, clock),
        "consumers": partial(consumers, database, connection),
        "dead letters": partial(dead_letters, connection),
    }


async def schedules(
    database: Database, connection: NatsConnection, clock: Clock, settle: float = SETTLE_SECONDS
) -> list[Finding]:
    """Compare the bucket with PostgreSQL, twice where they differ."""
    drifted = await _drift(database, connection, clock)
    if drifted:
        await asyncio.sleep(settle)
        later = await _drift(database, connection, clock)
        drifted = {key: how for key, how in later.items() if key in drifted}
    kinds = sorted(set(drifted.values()))
    return [
        Finding(
            f"schedules in NATS differ from PostgreSQL: {sum(how == kind for how in drifted.values())} {kind}, "
            f"as that of {next(key for key, how in drifted.items() if how == kind)}",
            "start an API process: it copies them again within ten seconds; if one runs, look at its log",
        )
        for kind in kinds
    ]


async def _drift(database: Database, connection: NatsConnection, clock: Clock) -> dict[UUID, str]:
    bucket = await _bucket(connection, clock)
    async with database.system() as session:
        revisions = await active_revisions(session)
    return {key: _kind(key, revisions, bucket) for key in drift(revisions, bucket)}


def _kind(key: UUID, revisions: Mapping[UUID, int], bucket: Mapping[str, bytes]) -> str:
    if key not in revisions:
        return "too many"
    return "of another revision" if str(key) in bucket else "missing"


async def _bucket(connection: NatsConnection, clock: Clock) -> dict[str, bytes]:
    content: dict[str, bytes] = {}

    def take(key: str, value: bytes | None, _revision: int) -> None:
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value

    watch = BucketWatch(connection, names.SCHEDULES_BUCKET, clock, take)
    try:
        await watch.load()
    finally:
        await watch.close()
    return content


async def work(database: Database, connection: NatsConnection, clock: Clock) -> list[Finding]:
    """What the watchdog would say at its first look; a region's workers are looked at by ``consumers``."""
    verdicts = judge(await look(database, connection, clock), Memory())
    del verdicts["workers"]
    if verdicts["dispatch"] is None and not await _somebody_leads(connection):
        verdicts["dispatch"] = "no scheduler leads"
    return [
        Finding(problem, _MENDS.get(part, _LOOK_AT_API))
        for part, problem in verdicts.items()
        if problem is not None
    ]


async def _somebody_leads(connection: NatsConnection) -> bool:
    subject = bucket_subject(names.LEADER_BUCKET, names.LEADER_KEY)
    try:
        record = await connection.js.get_last_msg(bucket_stream(names.LEADER_BUCKET), subject)
    except NotFoundError:
        return False
    return bool(record.data)


async def consumers(database: Database, connection: NatsConnection) -> list[Finding]:
    """Every declared consumer: is it there, as declared, and does somebody read it?"""
    async with database.system() as session:
        regions = await active_regions(session)
    wanted = declared_consumers(regions)
    found = await asyncio.gather(*(_consumer(connection, stream, consumer) for stream, consumer in wanted))
    return [finding for finding in found if finding]


async def _consumer(connection: NatsConnection, stream: str, wanted: ConsumerConfig) -> Finding | None:
    place = f"consumer {wanted.durable_name} of stream {stream}"
    differences = await inspect_consumer(connection.js, stream, wanted)
    if differences is None:
        return Finding(f"{place} is missing: nobody has ever read {wanted.filter_subject}", _reader(wanted))
    if differences:
        return Finding(f"{place}: {as_words(differences)}", "restart a worker that reads it: it corrects this")
    if not await _is_read(connection, stream, str(wanted.durable_name)):
        return Finding(f"{place} has no reader: nobody works on {wanted.filter_subject}", _reader(wanted))
    return None


async def _is_read(connection: NatsConnection, stream: str, consumer: str) -> bool:
    """Somebody asks, or is given something meanwhile: the busiest reader asks for nothing."""
    first: int | None = None
    for _ in range(LOOKS):
        info = await connection.js.consumer_info(stream, consumer)
        delivered = info.delivered.consumer_seq if info.delivered else 0
        first = delivered if first is None else first
        if info.num_waiting or delivered != first:
            return True
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return False


def _reader(wanted: ConsumerConfig) -> str:
    name, of_region = str(wanted.durable_name), names.worker_consumer("")
    region = name.removeprefix(of_region) if name.startswith(of_region) else PLATFORM_REGION
    if region == PLATFORM_REGION:
        return "start a worker that has a database: tocsin worker"
    return f"start a worker of that region: tocsin worker --region {region}"


async def dead_letters(connection: NatsConnection) -> list[Finding]:
    state = (await stream_state(connection, names.DEAD_LETTERS_STREAM)).state
    if state is None or not state.messages:
        return []
    return [
        Finding(
            f"{state.messages} dead letters wait" if state.messages > 1 else "a dead letter waits",
            "read them with tocsin dead-letters list, then replay or delete them",
            Severity.WARNING,
        )
    ]
