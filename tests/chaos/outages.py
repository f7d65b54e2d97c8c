"""Monitors that fail and recover all the while, told to the queue result by result as a worker tells it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import text

from shared.contracts.names import result_subject
from shared.contracts.wire import ResultBatch, ResultMessage
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import CheckVerdict, ResultStatus
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually

UP = CheckVerdict(ResultStatus.UP)
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens"))
_STATUS = text("SELECT status FROM monitor_state WHERE monitor_id = :id")
_RESULTS = text("SELECT count(*) FROM check_results")
_TRANSITIONS = text("""
    SELECT i.id AS incident_id, i.monitor_id, e.detail ->> 'tell' AS transition
    FROM incident_events AS e JOIN incidents AS i ON i.id = e.incident_id
    WHERE e.detail ->> 'tell' IS NOT NULL ORDER BY e.id
""")
_HELD = text("SELECT EXISTS (SELECT FROM incidents WHERE held)")

clock = SystemClock()


@asynccontextmanager
async def connected(nats: NatsServer) -> AsyncIterator[NatsConnection]:
    """A connection to a server that has our streams."""
    connection = await connect([nats.url], name="tests", buffer_writes=False)
    await ensure_streams(connection.js)
    yield connection
    await connection.close()


class Outages:
    """What is sent, and what must come of it: an outage is one incident, opened once and resolved once.

    A monitor's next result is sent when its last one has turned its state. Every other failure is seen by a worker
    that nobody knows, so that its alert waits for the sweep; some messages are sent twice.
    """

    def __init__(self, database: Database, publisher: Publisher, chance: random.Random) -> None:
        self._database, self._publisher, self._chance = database, publisher, chance
        self._over = asyncio.Event()
        self._slot_ms = 0
        self.of: Counter[UUID] = Counter()
        self.results = 0

    async def go_on(self, monitor_id: UUID) -> None:
        """One outage after the other until ``end``; the last one is seen through."""
        while not self._over.is_set():
            self.of[monitor_id] += 1
            worker = f"w{self.results}" if self._chance.random() < 0.5 else ""
            for verdict in (DOWN, UP):
                await self._turn(monitor_id, verdict, worker)
                await asyncio.sleep(self._chance.uniform(0, 0.6))

    def end(self) -> None:
        self._over.set()

    async def _turn(self, monitor_id: UUID, verdict: CheckVerdict, worker: str) -> None:
        self._slot_ms = max(self._slot_ms + 1, clock.now_ms())
        message = ResultMessage(monitor_id, 1, "default", self._slot_ms, self._slot_ms, verdict, worker=worker)
        self.results += 1
        for _ in range(self._chance.choice([1, 1, 1, 2])):
            await self._publisher.send(result_subject("default"), msgspec.json.encode(ResultBatch((message,))))

        async def is_recorded() -> bool:
            async with self._database.system() as session:
                return bool(await session.scalar(_STATUS, {"id": monitor_id}) == verdict.status.value)

        await eventually(f"monitor {monitor_id} is {verdict.status.value}", is_recorded, within=60)

    async def stored(self) -> int:
        """How many results are in the database."""
        async with self._database.system() as session:
            return int(await session.scalar(_RESULTS) or 0)

    async def transitions(self) -> list[Any]:
        """What people are to hear of: rows of incident_id, monitor_id and transition."""
        async with self._database.system() as session:
            return list(await session.execute(_TRANSITIONS))

    async def is_waiting(self) -> bool:
        """Whether an alert still waits for the sweep."""
        async with self._database.system() as session:
            return bool(await session.scalar(_HELD))
