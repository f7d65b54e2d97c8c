"""The platform's jobs in a whole installation: they run, come back with the schedules, and are run by hand."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from nats.js.errors import NotFoundError

from shared.contracts.names import SCHEDULES_BUCKET
from shared.db.repositories import jobs as repository
from shared.db.session import Database
from shared.jobs.schedule import job_id
from shared.messaging.connect import connect
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.testing.tocsin import eventually
from tests.chaos.installation import SECRET_KEY, Installation, clock

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.asyncio(loop_scope="module")]

WORKER_JOBS = {
    "create_partitions",
    "drop_partitions",
    "forget_answers",
    "forget_api_keys",
    "forget_deliveries",
    "purge_dead_letters",
}
API_JOBS = {"reconcile_schedules", "audit_slots"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with Installation(tmp_path_factory.mktemp("jobs")) as running:
        await running.create_monitors(["/a", "/b"])
        yield running


async def statuses(installation: Installation) -> Mapping[str, str | None]:
    async with (
        Database(installation.database_url, application_name="tests") as database,
        database.system() as session,
    ):
        return {job.name: job.last_status for job in await repository.list_all(session)}


async def missing(installation: Installation) -> set[str]:
    """Keys of schedules that are not in the bucket: monitors and jobs."""
    connection = await connect([installation.nats.url], name="tests", buffer_writes=False)
    wanted = {str(monitor_id) for monitor_id in installation.paths.values()}
    wanted |= {str(job_id(name)) for name in WORKER_JOBS}
    gone = set()
    for key in wanted:
        try:
            await connection.js.get_last_msg(bucket_stream(SCHEDULES_BUCKET), bucket_subject(SCHEDULES_BUCKET, key))
        except NotFoundError:
            gone.add(key)
    await connection.close()
    return gone


async def jobs_command(installation: Installation, *words: str) -> tuple[int | None, str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")},
        "TOCSIN_DATABASE_URL": installation.database_url,
        "TOCSIN_NATS_URL": installation.nats.url,
        "TOCSIN_SECRET_KEYS": SECRET_KEY,
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "jobs", *words, stdout=pipe, stderr=pipe, env=environment
    )
    output, errors = await process.communicate()
    return process.returncode, (output + errors).decode()


async def test_every_job_runs_soon_after_the_start(installation: Installation) -> None:
    async def all_done() -> bool:
        found = await statuses(installation)
        return found == dict.fromkeys(WORKER_JOBS | API_JOBS, "succeeded")

    await eventually("every job succeeds", all_done, within=30)


async def test_schedules_of_monitors_and_jobs_come_back_after_the_bucket_is_deleted(
    installation: Installation,
) -> None:
    async def complete() -> bool:
        return not await missing(installation)

    await eventually("all is scheduled", complete, within=30)
    connection = await connect([installation.nats.url], name="tests", buffer_writes=False)
    await connection.js.delete_stream(bucket_stream(SCHEDULES_BUCKET))
    await connection.close()
    began = clock.monotonic()
    await eventually("all schedules are back", complete, within=30)
    print(f"{len(WORKER_JOBS) + len(installation.paths)} schedules back after {clock.monotonic() - began:.1f} s")


async def test_a_job_that_is_not_due_is_not_run_by_hand_unless_forced(installation: Installation) -> None:
    code, output = await jobs_command(installation, "run", "create_partitions")
    assert (code, output) == (0, "create_partitions is not due: nothing was done (--force runs it all the same)\n")
    code, output = await jobs_command(installation, "run", "create_partitions", "--force", "--json")
    assert code == 0
    assert json.loads(output)["status"] == "succeeded"
    code, output = await jobs_command(installation, "run", "reconcile_schedules", "--force")
    assert code == 0
    assert output.startswith("reconcile_schedules succeeded after ")
    code, output = await jobs_command(installation, "run", "nothing")
    assert (code, output) == (
        2, f"tocsin: there is no such job: name one of {', '.join(sorted(WORKER_JOBS | API_JOBS))}\n"
    )  # fmt: skip
    code, output = await jobs_command(installation, "list")
    assert code == 0
    assert output.splitlines()[0].split()[:2] == ["JOB", "EVERY"]
    assert {line.split()[0] for line in output.splitlines()[1:]} == WORKER_JOBS | API_JOBS
    code, output = await jobs_command(installation, "list", "--json")
    listed: list[dict[str, Any]] = msgspec.json.decode(output)
    assert [job["name"] for job in listed] == sorted(WORKER_JOBS | API_JOBS)
    assert not any(job["silent"] for job in listed)


async def test_without_servers_named_it_says_so_in_one_line(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "jobs", "list",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment, cwd=tmp_path,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 2
    assert output.decode().startswith("tocsin: set TOCSIN_DATABASE_URL, or name the --data-dir")
