"""``/v1/jobs``: for the organisation that operates the installation, and for nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from api.context import Context
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.jobs.errors import JobNotStartedError
from shared.jobs.outcome import JobOutcome, JobStatus
from shared.services.api_keys import Scope
from shared.services.errors import NotFoundError
from tests.integration.api.conftest import Tenant, add_key


class PlayedJobs:
    """Stands where the runner would: remembers what was asked, and answers or raises."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.outcome = JobOutcome("audit_slots", JobStatus.SUCCEEDED, 207, 1800)
        self.error: Exception | None = None

    async def run(self, name: str, *, forced: bool = False) -> JobOutcome:
        self.asked.append((name, forced))
        if self.error:
            raise self.error
        return self.outcome


@pytest.fixture
def played(app: FastAPI, context: Context) -> PlayedJobs:
    made = PlayedJobs()
    app.state.context = replace(context, jobs=made)
    return made


@pytest.fixture
async def operator(alice: Tenant, database: Database, context: Context) -> Tenant:
    """Alice operates the installation, which has one job that is well and one that is silent."""
    now = to_datetime(context.clock.now_ms())
    async with database.system() as session:
        await session.execute(
            text("UPDATE organisations SET is_operator = true WHERE id = :id"), {"id": alice.organisation_id}
        )
        for name, success in (("audit_slots", now), ("quiet", now - timedelta(days=1))):
            await session.execute(
                text("""
                INSERT INTO jobs (name, every_seconds, silence_after_seconds, runs_in, schedule_id, registered_at,
                    last_started_at, last_success_at, last_duration_ms, last_status, runs, processed)
                VALUES (:name, 60, 600, 'api', gen_random_uuid(), :now, :now, :success,
                    207, 'succeeded', 3, 5)
                """),
                {"name": name, "now": now, "success": success},
            )
    return alice


async def test_the_operator_sees_every_job(operator: Tenant) -> None:
    answer = await operator.client.get("/v1/jobs")
    assert answer.status_code == 200, answer.text
    assert answer.json()["next_cursor"] is None
    well, quiet = answer.json()["items"]
    assert (well["name"], well["every_seconds"], well["silent"]) == ("audit_slots", 60, False)
    assert (quiet["name"], quiet["silent"]) == ("quiet", True)
    expected = {"name", "every_seconds", "last_started_at", "last_success_at", "last_duration_ms", "last_status",
                "runs", "failures", "timeouts", "skipped", "silent"}  # fmt: skip
    assert expected <= well.keys()


async def test_another_organisation_is_refused_whatever_its_key_may(
    operator: Tenant, bob: Tenant, played: PlayedJobs
) -> None:
    for answer in (await bob.client.get("/v1/jobs"), await bob.client.post("/v1/jobs/audit_slots/run")):
        assert (answer.status_code, answer.json()["code"]) == (403, "operator_only")
    assert played.asked == []


async def test_a_run_answers_what_happened(operator: Tenant, played: PlayedJobs) -> None:
    answer = await operator.client.post("/v1/jobs/audit_slots/run")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "name": "audit_slots", "status": "succeeded", "duration_ms": 207, "processed": 1800, "error": None
    }  # fmt: skip
    played.outcome = JobOutcome("audit_slots", JobStatus.NOT_DUE)
    assert (await operator.client.post("/v1/jobs/audit_slots/run?force=true")).json()["status"] == "not_due"
    assert played.asked == [("audit_slots", False), ("audit_slots", True)]


async def test_a_repeated_request_runs_it_once(operator: Tenant, played: PlayedJobs) -> None:
    headers = {"Idempotency-Key": "once"}
    answers = [await operator.client.post("/v1/jobs/audit_slots/run", headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert len(played.asked) == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        pytest.param(NotFoundError("job"), 404, "not_found", id="unknown"),
        pytest.param(JobNotStartedError("NATS is away"), 503, "job_not_started", id="not started"),
    ],
)
async def test_what_can_not_run_is_a_problem(
    operator: Tenant, played: PlayedJobs, error: Exception, status: int, code: str
) -> None:
    played.error = error
    answer = await operator.client.post("/v1/jobs/audit_slots/run")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_running_needs_the_scope_admin_and_reading_the_scope_read(
    operator: Tenant, anonymous: httpx.AsyncClient, database: Database, played: PlayedJobs
) -> None:
    key = await add_key(database, operator.organisation_id, Scope.WRITE)
    headers = {"Authorization": f"Bearer {key}"}
    assert (await anonymous.get("/v1/jobs", headers=headers)).status_code == 200
    assert (await anonymous.post("/v1/jobs/audit_slots/run", headers=headers)).status_code == 403
    assert (await anonymous.get("/v1/jobs")).status_code == 401
