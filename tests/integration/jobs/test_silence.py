"""Silence of a job: when it begins, what is told of it, and that it ends by itself."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from structlog.testing import capture_logs

from shared.db.repositories import jobs as repository
from shared.db.repositories.jobs import JobRow
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.jobs.schedule import job_id
from shared.jobs.silence import SilenceMonitor
from shared.testing.clock import FakeClock


class Watch:
    """A monitor over one job that may be silent for ten minutes, on a clock of the test."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, FakeClock()
        self.monitor = SilenceMonitor(database, self.clock)

    async def register(self) -> None:
        row = JobRow("quiet", 60, 600, "worker", job_id("quiet"))
        async with self.database.system() as session:
            await repository.register(session, [row], to_datetime(self.clock.now_ms()))

    async def succeed(self) -> None:
        async with self.database.system() as session:
            query = text("UPDATE jobs SET last_success_at = :now")
            await session.execute(query, {"now": to_datetime(self.clock.now_ms())})

    async def look(self) -> list[str]:
        """Look once; answers what was logged."""
        with capture_logs() as logs:
            await self.monitor.look()
        return [f"{entry['log_level']}: {entry['event']}" for entry in logs]


@pytest.fixture
async def watch(database: Database) -> Watch:
    made = Watch(database)
    await made.register()
    return made


def silent_metric() -> float | None:
    return REGISTRY.get_sample_value("tocsin_job_silent", {"job": "quiet"})


async def test_a_job_that_never_ran_is_silent_from_its_registration_on(watch: Watch) -> None:
    watch.clock.advance(600)
    assert await watch.look() == []
    watch.clock.advance(1)
    assert await watch.look() == ["error: job is silent"]
    assert (list(watch.monitor.silent), silent_metric()) == (["quiet"], 1)


async def test_it_is_told_again_every_ten_minutes_and_ends_by_itself(watch: Watch) -> None:
    watch.clock.advance(700)
    await watch.look()
    watch.clock.advance(300)
    assert await watch.look() == []
    watch.clock.advance(300)
    assert await watch.look() == ["error: job is silent"]
    await watch.succeed()
    assert await watch.look() == ["info: job is no longer silent"]
    assert (list(watch.monitor.silent), silent_metric()) == ([], 0)
    watch.clock.advance(601)
    assert await watch.look() == ["error: job is silent"], "a second silence is told at once"


async def test_after_everything_was_down_jobs_have_a_minute_to_run(watch: Watch) -> None:
    watch.clock.advance(8 * 3600)
    watch.monitor = SilenceMonitor(watch.database, watch.clock)
    assert await watch.look() == []
    watch.clock.advance(59)
    assert await watch.look() == []
    watch.clock.advance(1)
    assert await watch.look() == ["error: job is silent"]


async def test_a_changed_declaration_keeps_the_state_and_gets_a_new_revision(
    watch: Watch, database: Database
) -> None:
    await watch.succeed()
    row = JobRow("quiet", 120, 600, "worker", job_id("quiet"))
    for _ in range(2):
        watch.clock.advance(60)
        async with database.system() as session:
            await repository.register(session, [row], to_datetime(watch.clock.now_ms()))
    async with database.system() as session:
        job = await repository.get(session, "quiet")
    assert job is not None
    assert (job.every_seconds, job.revision, job.last_success_at) == (120, 2, job.registered_at)
