"""A worker process with one job of a test: ``python -m tests.integration.jobs.job_worker DATABASE NATS``.

The job counts on from its checkpoint, three steps a run, and writes each step with the process that made it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import structlog
from sqlalchemy import text

from monitoring_worker.jobs import JobDuty, JobReceiver
from shared.contracts.names import CHECKS_STREAM, worker_consumer
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.region import PLATFORM_REGION
from shared.jobs.context import JobContext
from shared.jobs.periodic import periodic
from shared.jobs.runner import JobRunner
from shared.messaging.connect import connect
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_consumer, ensure_streams
from shared.observability.logging import configure_logging

STEP_SECONDS = 0.4
_WRITE = text("""
    INSERT INTO outbox (organisation_id, topic, key, payload)
    VALUES (gen_random_uuid(), :topic, :key, jsonb_build_object('pid', CAST(:pid AS bigint)))
""")


@periodic("steps", every="2s", lock="3s", timeout="3s", silence_after="6s")
async def steps(context: JobContext) -> None:
    async with context.transaction() as session:
        await session.execute(_WRITE, {"topic": "run", "key": str(context.due_at_ms), "pid": os.getpid()})
    for _ in range(3):
        place = (context.checkpoint or {"place": 0})["place"] + 1
        async with context.transaction() as session:
            await session.execute(_WRITE, {"topic": "step", "key": str(place), "pid": os.getpid()})
            context.checkpoint = {"place": place}
            await asyncio.sleep(STEP_SECONDS)
        context.raise_if_timed_out()


async def work(database_url: str, nats_url: str) -> None:
    stopping, clock = asyncio.Event(), SystemClock()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    connection = await connect([nats_url], name="job worker", buffer_writes=True)

    async def ensure() -> None:
        await ensure_streams(connection.js)
        await ensure_consumer(connection.js, PLATFORM_REGION)

    await ensure()
    async with Database(database_url, application_name="job worker") as database:
        runner = JobRunner(database, connection, clock, ensure)
        await runner.register([steps])
        pull = PullLoop(connection, CHECKS_STREAM, worker_consumer(PLATFORM_REGION), ensure=ensure, batch=4)
        structlog.get_logger().info("listening")
        await JobReceiver(pull, JobDuty(runner, [steps], clock)).listen(stopping, grace_seconds=5)
    await connection.close()


if __name__ == "__main__":
    configure_logging("json", "INFO")
    asyncio.run(work(*sys.argv[1:]))
