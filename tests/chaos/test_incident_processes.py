"""Twenty results of one monitor at once in two recorder processes: one incident, told once, and no result lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import TextClause, text

from shared.contracts.names import RECORDER_CONSUMER, RESULTS_STREAM, result_subject
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.result import CheckVerdict
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_recorder
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.chaos import alert_process
from tests.chaos.alert_process import GATE, Orders, Part
from tests.chaos.outages import DOWN, UP, connected
from tests.integration.alerting.conftest import Scene
from tests.integration.db.tenants import add_organisation

AT_ONCE = 20
_SHUT = text("SELECT pg_advisory_xact_lock(:gate)")
_BEHIND = text("""
    SELECT a.application_name, count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.objid = CAST(:gate AS oid) AND NOT l.granted GROUP BY 1
""")
_COUNT = text("SELECT count(*) FROM check_results")
_TOLD = text("SELECT payload ->> 'transition' FROM outbox WHERE topic = 'incident' ORDER BY id")
_INCIDENTS = text("SELECT state, reopened FROM incidents")
_PRESENT = text("""
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'recorder%'
""")
_DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

clock = SystemClock()


class Crowd:
    """Results of one monitor that are recorded at the same moment, each in a transaction of its own."""

    def __init__(
        self, database: Database, connection: NatsConnection, monitor_id: UUID, chance: random.Random
    ) -> None:
        self._database, self._connection = database, connection
        self._monitor_id, self._chance = monitor_id, chance
        self._slot_ms = clock.now_ms()
        self.sent = 0
        self.splits: Counter[tuple[int, ...]] = Counter()

    async def come(self, publisher: Publisher, verdict: CheckVerdict) -> None:
        """Send them, let each be taken by another recorder, and open the gate when all stand behind it."""
        await eventually("every recorder asks for a result", self._is_awaited, within=20)
        async with self._database.system() as session:
            await session.execute(_SHUT, {"gate": GATE})
            await asyncio.gather(*(self._send(publisher, message) for message in self._results(verdict)))
            await eventually("all results are in hand", self._is_complete, within=20)
        await eventually("all results are stored", self._is_stored, within=20)

    def _results(self, verdict: CheckVerdict) -> list[ResultMessage]:
        slots = [self._slot_ms + place for place in range(1, AT_ONCE + 1)]
        self._slot_ms, self.sent = slots[-1], self.sent + AT_ONCE
        self._chance.shuffle(slots)
        return [ResultMessage(self._monitor_id, 1, "default", slot, slot, verdict) for slot in slots]

    async def _send(self, publisher: Publisher, message: ResultMessage) -> None:
        await publisher.send(result_subject("default"), msgspec.json.encode(ResultBatch((message,))))

    async def _is_awaited(self) -> bool:
        """Whether every recorder asks for a result."""
        info = await self._connection.js.consumer_info(RESULTS_STREAM, RECORDER_CONSUMER)
        return bool(info.num_waiting == AT_ONCE)

    async def _is_complete(self) -> bool:
        behind = [number for _, number in await self.rows(_BEHIND, gate=GATE)]
        if sum(behind) < AT_ONCE:
            return False
        self.splits[tuple(sorted(behind))] += 1
        return True

    async def _is_stored(self) -> bool:
        return await self.rows(_COUNT) == [(self.sent,)]

    async def is_alone(self) -> bool:
        """Whether the last connection of the recorders is gone: only then all that they did is counted."""
        return await self.rows(_PRESENT) == [(0,)]

    async def rows(self, query: TextClause, **values: Any) -> list[Any]:
        async with self._database.system() as session:
            return list(await session.execute(query, values))


@pytest.mark.chaos
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(5, id="quick"),
        pytest.param(50, id="whole", marks=[pytest.mark.whole, pytest.mark.timeout(600)]),
    ],
)
async def test_two_recorder_processes_make_one_incident_of_twenty_results_at_once(
    rounds: int, database: Database, database_url: str, nats: NatsServer, record_property: Any
) -> None:
    """STATE-04."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    scene = Scene(database, await add_organisation(database, "alice"))
    monitor_id = await scene.add_monitor(flap_window_seconds=0)
    async with connected(nats) as connection, Publisher(connection) as publisher:
        await ensure_recorder(connection.js)
        crowd = Crowd(database, connection, monitor_id, random.Random(seed))
        with _two_recorders(Orders(database_url, nats.url)):
            for number in range(rounds):
                for verdict in (DOWN, UP):
                    await crowd.come(publisher, verdict)
                expected = [transition for _ in range(number + 1) for transition in ("opened", "resolved")]
                assert [row[0] for row in await crowd.rows(_TOLD)] == expected
    assert await crowd.rows(_INCIDENTS) == [("resolved", 0)] * rounds
    assert all(len(split) == 2 for split in crowd.splits), "one of the two did nothing"
    await eventually("the recorders are gone", crowd.is_alone, within=20)
    assert await crowd.rows(_DEADLOCKS) == [(0,)]
    told = (
        f"{rounds} rounds of {AT_ONCE} failures and {AT_ONCE} successes at once in two recorder processes: "
        f"{rounds} incidents, each opened and resolved once, {crowd.sent} results stored, no deadlock"
    )
    print(told, crowd.splits)
    record_property("figure", f"Incidents, {told}.")


@contextmanager
def _two_recorders(orders: Orders) -> Iterator[None]:
    parts = [Part("recorders", alert_process.ten_recorders, orders) for _ in range(2)]
    try:
        for part in parts:
            part.start()
        yield
    finally:
        for part in parts:
            part.stop()
