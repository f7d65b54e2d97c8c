"""The API process tells whoever runs the platform what is wrong: dead letters, silent jobs, the watchdog."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.tasks.letter_box import LetterBox
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.integration.api.test_process import api_process, port_of
from tests.integration.db.tenants import add_organisation

clock = SystemClock()

QUIET_JOB = text("""
    INSERT INTO jobs (name, every_seconds, silence_after_seconds, runs_in, schedule_id, registered_at)
    VALUES ('quiet', 1, 1, 'worker', gen_random_uuid(), now() - interval '1 day')
""")
# Without any channel the timeline says that nobody was told, which is the last thing that the API process does.
ALERTS = text("""
    SELECT i.worker FROM incidents AS i JOIN incident_events AS e ON e.incident_id = i.id AND e.kind = 'delivery'
    WHERE i.kind = 'platform' AND i.organisation_id = :organisation_id
""")


@pytest.mark.slow
async def test_trouble_of_the_platform_becomes_alerts_and_metrics(
    database: Database, database_url: str, nats: NatsServer, connection: NatsConnection, publisher: Publisher
) -> None:
    organisation_id = await add_organisation(database, "operator")
    async with database.system() as session:
        await session.execute(QUIET_JOB)
    await LetterBox(publisher).put_content(
        task="store_result",
        subject="results.default",
        payload=b"{}",
        identity="i",
        moment_ms=clock.now_ms(),
        failed_ms=clock.now_ms(),
        kind="refused",
        reason="no",
    )

    async def told() -> bool:
        async with database.system() as session:
            found = set(await session.scalars(ALERTS, {"organisation_id": organisation_id}))
        return found >= {"dead letters: store_result", "silent job: quiet", "watchdog: workers"}

    async with (
        api_process(database_url, nats.url) as process,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{await port_of(process)}", timeout=60, trust_env=False
        ) as client,
    ):
        await eventually("all three are told", told, within=90)
        shown = (await client.get("/metrics")).text
    assert 'tocsin_dead_letters{task="store_result"} 1.0' in shown
    assert 'tocsin_job_silent{job="quiet"} 1.0' in shown
    assert 'tocsin_watchdog_alarm{part="workers"} 1.0' in shown
