"""An answered ping is never lost: not with the database away, and not with the receiver killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from shared.contracts.names import PINGS_CONSUMER, PINGS_STREAM
from shared.contracts.sealing import Sealer
from shared.contracts.wire import PingMessage
from shared.db.base import new_id
from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.heartbeat import Signal
from shared.domain.monitor import MonitorSpec
from shared.messaging.connect import connect
from shared.messaging.publisher import Publisher
from shared.messaging.pull import PullLoop
from shared.messaging.streams import ensure_ping_consumer, ensure_streams
from shared.services import pings
from shared.services.api_keys import Scope
from shared.services.heartbeats import token_hash
from shared.services.monitors import MonitorService
from shared.services.pings import NotReceivedError, PingDesk, store_handed_over
from shared.testing.nats import NatsServer
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import eventually
from tests.integration.api.conftest import SECRET_KEY, add_key
from tests.integration.api.test_process import api_process, port_of
from tests.integration.db.tenants import add_organisation


def a_ping(hash_of_token: bytes) -> PingMessage:
    return PingMessage(new_id(), hash_of_token, SystemClock().now_ms(), Signal.LOG)


@contextlib.asynccontextmanager
async def running(*work: Any) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def add_heartbeat(database: Database) -> bytes:
    """Answers the hash of its token."""
    organisation_id = await add_organisation(database, "alice")
    spec = MonitorSpec.model_validate({"name": "Job", "check": {"kind": "heartbeat", "period_seconds": 3600}})
    async with database.tenant(organisation_id) as session:
        await MonitorService(Sealer([SECRET_KEY]), SystemClock()).create(session, organisation_id, spec)
    return bytes((await rows(database, "SELECT token_hash FROM heartbeats"))[0][0])


async def rows(database: Database, query: str) -> list[Any]:
    async with database.system() as session:
        return list(await session.execute(text(query)))


async def test_while_the_database_is_away_nats_keeps_the_pings(
    tmp_path: Path, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pings, "_REST_SECONDS", 0.2)
    async with PostgresServer(tmp_path) as postgres:
        await asyncio.to_thread(upgrade, postgres.url)
        database = Database(postgres.url, application_name="tests")
        connection = await connect([nats.url], name="tests", buffer_writes=False)
        await ensure_streams(connection.js)
        await ensure_ping_consumer(connection.js)
        pull = PullLoop(
            connection, PINGS_STREAM, PINGS_CONSUMER, ensure=lambda: ensure_ping_consumer(connection.js)
        )
        known = await add_heartbeat(database)
        async with database, Publisher(connection) as publisher, pull:
            desk = PingDesk(database, SystemClock(), publisher)
            async with running(desk.run(), store_handed_over(database, pull)):
                sent = [a_ping(known) for _ in range(3)]
                assert await desk.receive(sent[0])
                await postgres.stop()
                assert await desk.receive(sent[1])
                assert await desk.receive(sent[2])
                with pytest.raises(NotReceivedError):
                    await desk.receive(a_ping(token_hash("never seen")))
                assert desk.refused == 1
                await postgres.start()

                async def stored() -> bool:
                    found = await rows(database, "SELECT id FROM heartbeat_pings")
                    return {row[0] for row in found} == {ping.id for ping in sent}

                await eventually("all three are stored", stored, within=60)

                async def is_asked_again() -> bool:
                    with contextlib.suppress(NotReceivedError):  # for a moment it goes on handing over
                        return not await desk.receive(a_ping(token_hash("never seen")))
                    return False

                await eventually("an unknown token is known to be unknown", is_asked_again)
        await connection.close()


async def test_pings_beyond_what_fits_are_refused_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pings, "MAX_WAITING", 3)
    desk = PingDesk(database, SystemClock())
    waiting = [asyncio.ensure_future(desk.receive(a_ping(b"x"))) for _ in range(5)]
    await asyncio.sleep(0)
    refused = [each for each in waiting if each.done()]
    assert len(refused) == 2
    assert all(isinstance(each.exception(), NotReceivedError) for each in refused)
    async with running(desk.run()):
        assert await asyncio.gather(*(each for each in waiting if each not in refused)) == [False] * 3


async def test_a_ping_that_was_answered_survives_the_kill_of_its_receiver(
    database: Database, database_url: str, nats: NatsServer
) -> None:
    organisation_id = await add_organisation(database, "alice")
    key = await add_key(database, organisation_id, Scope.ADMIN)
    async with api_process(database_url, nats.url) as process:
        base = f"http://127.0.0.1:{await port_of(process)}"
        headers = {"Authorization": f"Bearer {key}"}
        body = {"name": "Job", "check": {"kind": "heartbeat", "period_seconds": 3600}}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60, trust_env=False) as client:
            monitor = (await client.post("/v1/monitors", json=body)).json()
            path = monitor["heartbeat"]["ping_path"]
            answered = 0

            async def keep_pinging() -> None:
                nonlocal answered
                while (await client.get(f"{path}/log")).status_code == 200:
                    answered += 1
                    if answered == 40:
                        process.kill()

            with contextlib.suppress(httpx.TransportError):
                await asyncio.gather(*(keep_pinging() for _ in range(8)))
        await process.wait()
    ((stored,),) = await rows(database, "SELECT count(*) FROM heartbeat_pings")
    assert stored >= answered >= 40
    assert await rows(database, "SELECT alive_from, alive_until FROM heartbeat_receivers") != []
