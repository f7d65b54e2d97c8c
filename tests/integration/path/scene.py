"""A stage for incidents: results go in at moments that the test sets, and what people would be told comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from shared.contracts.sealing import Sealer
from shared.contracts.wire import ResultMessage
from shared.db.base import new_id
from shared.db.repositories.results import ensure_partitions
from shared.db.repositories.state import mark_blind
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.monitor import MonitorSpec
from shared.domain.result import CheckVerdict, ResultStatus, missed
from shared.services.holds import sweep
from shared.services.incidents import reconsider
from shared.services.monitors import MonitorService
from shared.services.recording import record
from shared.testing.clock import FakeClock

INTERVAL_MS = 10_000
VERDICTS: Mapping[str, CheckVerdict] = {
    "S": CheckVerdict(ResultStatus.UP),
    "F": CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "nothing listens")),
    "G": CheckVerdict(ResultStatus.DEGRADED),
    "m": missed(MissedReason.WORKER_GAP, "no worker"),
    "i": CheckVerdict(ResultStatus.MISSED, error=CheckError(ErrorKind.INTERNAL_ERROR, "our own fault")),
}


@dataclass
class Scene:
    """One organisation and a clock.

    A letter is a result: S well, F failing, G degraded, m missed, i our own fault.
    """

    database: Database
    organisation_id: UUID
    clock: FakeClock = field(default_factory=FakeClock)
    told_until: int = 0

    @property
    def service(self) -> MonitorService:
        return MonitorService(Sealer(["k" * 32]), self.clock)

    async def prepare(self) -> None:
        """Partitions for the days of this clock."""
        today = to_datetime(self.clock.now_ms()).date()
        async with self.database.system() as session:
            await ensure_partitions(session, (today + timedelta(days=day) for day in range(2)))

    async def monitor(self, **fields: Any) -> UUID:
        check = {"kind": "http", "url": "http://a.test/"}
        spec = MonitorSpec.model_validate({"name": "m", "interval_seconds": 10, "check": check, **fields})
        async with self.database.tenant(self.organisation_id) as session:
            return await self.service.create(session, self.organisation_id, spec)

    async def monitors(self, number: int) -> list[UUID]:
        """One as the API creates it, and copies of its rows."""
        model = await self.monitor()
        copies = [new_id() for _ in range(number - 1)]
        async with self.database.system() as session:
            for table, column in (("monitors", "id"), ("monitor_state", "monitor_id")):
                columns = await session.scalars(text(_OTHER_COLUMNS), {"table": table, "column": column})
                others = ", ".join(columns)
                await session.execute(
                    text(
                        f"INSERT INTO {table} ({column}, {others}) SELECT copy, {others} FROM {table},"
                        f" unnest(CAST(:copies AS uuid[])) AS copy WHERE {column} = :model"
                    ),
                    {"copies": copies, "model": model},
                )
        return [model, *copies]

    async def say(self, monitor_id: UUID, letters: str, **place: Any) -> None:
        """One result per interval, each recorded by itself."""
        for letter in letters:
            if letter != " ":
                self.clock.advance(INTERVAL_MS / 1000)
                await self.record([self.result(monitor_id, letter, **place)])

    def result(
        self,
        monitor_id: UUID,
        letter: str,
        *,
        region: str = "default",
        worker: str = "",
        revision: int = 1,
        slot_ms: int | None = None,
    ) -> ResultMessage:
        slot = self.clock.now_ms() if slot_ms is None else slot_ms
        started = None if letter == "m" else slot
        return ResultMessage(monitor_id, revision, region, slot, started, VERDICTS[letter], worker=worker)

    async def record(self, messages: Iterable[ResultMessage]) -> None:
        async with self.database.system() as session:
            await record(session, list(messages), self.clock.now_ms())

    async def sweep(self, seconds: float = 0.0) -> int:
        self.clock.advance(seconds)
        async with self.database.system() as session:
            return await sweep(session, self.clock.now_ms())

    async def reconsider(self, *monitor_ids: UUID) -> None:
        async with self.database.system() as session:
            await reconsider(session, sorted(monitor_ids), self.clock.now_ms())

    async def mark_blind(self) -> int:
        async with self.database.system() as session:
            return await mark_blind(session, self.clock.now_ms())

    async def maintain(self, start_s: float, end_s: float) -> None:
        """A maintenance window for everything; seconds count from now."""
        values = {
            "id": new_id(),
            "organisation_id": self.organisation_id,
            "starts": to_datetime(self.clock.now_ms() + round(start_s * 1000)),
            "ends": to_datetime(self.clock.now_ms() + round(end_s * 1000)),
        }
        async with self.database.system() as session:
            for statement in _MAINTAIN:
                await session.execute(text(statement), values)

    async def rows(self, query: str, **values: Any) -> list[Any]:
        async with self.database.system() as session:
            return list(await session.execute(text(query), values))

    async def told(self) -> list[str]:
        """The transitions that went to the relay since this was last asked, in their order."""
        rows = await self.rows(
            "SELECT id, payload->>'transition' FROM outbox WHERE topic = 'incident' AND id > :id ORDER BY id",
            id=self.told_until,
        )
        self.told_until = max([self.told_until, *(row[0] for row in rows)])
        return [row[1] for row in rows]

    async def incidents(self, kind: str = "monitor") -> list[Any]:
        return await self.rows("SELECT * FROM incidents WHERE kind = :kind ORDER BY id", kind=kind)

    async def state(self, monitor_id: UUID) -> Any:
        (row,) = await self.rows("SELECT * FROM monitor_state WHERE monitor_id = :id", id=monitor_id)
        return row

    async def shown(self, monitor_id: UUID) -> str:
        state = await self.state(monitor_id)
        return str(state.overlay or state.status)

    async def history(self, monitor_id: UUID) -> list[tuple[str, float, float | None]]:
        """What was shown, from when to when, in seconds since this monitor was created."""
        rows = await self.rows(
            """
            SELECT p.status, extract(epoch FROM p.starts_at - m.created_at)::float8,
                extract(epoch FROM p.ends_at - m.created_at)::float8
            FROM state_periods AS p JOIN monitors AS m ON m.id = p.monitor_id
            WHERE m.id = :id ORDER BY p.id
            """,
            id=monitor_id,
        )
        return [(row[0], row[1], row[2]) for row in rows]


_OTHER_COLUMNS = """
    SELECT column_name FROM information_schema.columns WHERE table_name = :table AND column_name <> :column
"""
_MAINTAIN = (
    """
    INSERT INTO maintenance_windows (id, organisation_id, name, monitor_ids, tags, all_monitors, starts_at, ends_at,
        planned_from, created_at, updated_at)
    VALUES (:id, :organisation_id, 'w', '{}', '{}', true, :starts, :ends, :starts, now(), now())
    """,
    """
    INSERT INTO maintenance_occurrences (window_id, organisation_id, monitor_ids, tags, all_monitors, starts_at,
        ends_at)
    VALUES (:id, :organisation_id, '{}', '{}', true, :starts, :ends)
    """,
)


async def make_scene(database: Database, organisation_id: UUID) -> Scene:
    scene = Scene(database, organisation_id)
    await scene.prepare()
    return scene
