"""The platform's own jobs do their work on real servers, and a worker settles each slot rightly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from monitoring_worker.jobs import JobDuty
from shared.contracts.wire import JobCall, JobTask
from shared.db.repositories.results import ensure_partitions
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.domain.region import PLATFORM_REGION
from shared.jobs.context import JobContext
from shared.jobs.outcome import JobStatus
from shared.jobs.periodic import specification_of
from shared.jobs.runner import JobRunner
from shared.jobs.schedule import job_id
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.services.platform_jobs import ApiJobs, WorkerJobs
from shared.tasks.dead_letters import DeadLetterDesk
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.db.tenants import add_organisation
from tests.integration.jobs.conftest import clock

DAY = timedelta(days=1)


@pytest.fixture
async def jobs(connection: NatsConnection, runner: JobRunner) -> AsyncIterator[WorkerJobs]:
    async with Publisher(connection) as publisher:
        made = WorkerJobs(DeadLetterDesk(connection, publisher), retention_days=30, dead_letter_days=30)
        await runner.register(made.all())
        yield made


def slot(name: str, age_seconds: float = 0.0, every_seconds: int = 3600) -> JobTask:
    return JobTask(
        monitor_id=job_id(name),
        revision=1,
        region=PLATFORM_REGION,
        slot_ms=clock.now_ms() - round(age_seconds * 1000),
        interval_ms=every_seconds * 1000,
        run=JobCall(name),
    )


async def test_every_job_of_the_workers_succeeds(runner: JobRunner, jobs: WorkerJobs) -> None:
    outcomes = [await runner.run(job) for job in jobs.all()]
    assert [outcome.status for outcome in outcomes] == [JobStatus.SUCCEEDED] * len(jobs.all())


def test_what_watches_schedulers_and_workers_does_not_run_in_them() -> None:
    assert {specification_of(job).runs_in for job in (ApiJobs.audit_slots, ApiJobs.reconcile_schedules)} == {"api"}


async def test_only_days_past_the_retention_are_dropped(
    database: Database, runner: JobRunner, jobs: WorkerJobs
) -> None:
    today = to_datetime(clock.now_ms()).date()
    kept, dropped = [today - 30 * DAY, today - 29 * DAY], [today - 31 * DAY, today - 400 * DAY]
    async with database.system() as session:
        await ensure_partitions(session, [*kept, *dropped])
    assert (await runner.run(jobs.drop_partitions)).processed == 2
    async with database.system() as session:
        assert await ensure_partitions(session, kept) == 0
        assert await ensure_partitions(session, dropped) == 2


async def test_keys_that_died_long_ago_are_deleted(database: Database, runner: JobRunner, jobs: WorkerJobs) -> None:
    organisation_id = await add_organisation(database, "acme")
    keys = {"alive": (None, None), "revoked lately": (10, None), "revoked": (100, None), "expired": (None, 100)}
    now = to_datetime(clock.now_ms())
    async with database.system() as session:
        for name, (revoked, expired) in keys.items():
            await session.execute(
                text("""
                INSERT INTO api_keys (id, organisation_id, name, prefix, key_hash, scopes, revoked_at, expires_at)
                VALUES (gen_random_uuid(), :organisation_id, :name, '', :hash, '{}', :revoked, :expired)
                """),
                {
                    "organisation_id": organisation_id,
                    "name": name,
                    "hash": name.encode(),
                    "revoked": now - revoked * DAY if revoked else None,
                    "expired": now - expired * DAY if expired else None,
                },
            )
    assert (await runner.run(jobs.forget_api_keys)).processed == 2
    async with database.system() as session:
        assert set(await session.scalars(text("SELECT name FROM api_keys"))) == {"alive", "revoked lately"}


async def test_a_slot_whose_job_ran_or_is_done_is_settled(runner: JobRunner, jobs: WorkerJobs) -> None:
    duty = JobDuty(runner, jobs.all(), clock)
    assert await duty.run(slot("forget_answers"))
    assert await duty.run(slot("forget_answers", age_seconds=1)), "it comes a second time"


async def test_a_job_that_fails_settles_its_slot(runner: JobRunner) -> None:
    async def fail(_: JobContext) -> None:
        raise RuntimeError

    fail.__dict__.update(WorkerJobs.forget_answers.__dict__)
    await runner.register([fail])
    assert await JobDuty(runner, [fail], clock).run(slot("forget_answers"))


async def test_a_slot_that_could_not_run_comes_again_while_it_is_young(
    nats: NatsServer, connection: NatsConnection, runner: JobRunner, jobs: WorkerJobs
) -> None:
    duty = JobDuty(runner, jobs.all(), clock)
    assert not await duty.run(slot("job_of_a_newer_release"))
    assert await duty.run(slot("job_of_a_newer_release", age_seconds=61, every_seconds=60))
    await nats.stop()
    assert not await duty.run(slot("forget_answers"))
    await nats.start()

    async def connected() -> bool:
        return connection.is_connected

    await eventually("the connection is back", connected)
