"""An edge over many monitors: in small transactions, by one process at a time, and told once whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import CheckVerdict, ResultStatus
from shared.services.incidents import reconsider
from shared.services.maintenance import MaintenanceKeeper
from shared.services.recording import record
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import Tenant

MONITORS = 5
DOWN = CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.CONNECT_REFUSED, "refused"))


class CrashError(Exception):
    """The process ends here."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.services.maintenance._BATCH", 2)


@pytest.fixture
async def failing(tenant: Tenant, database: Database, clock: FakeClock) -> list[UUID]:
    """Monitors that went down inside a window which is over by now, and at whose end nobody has looked yet."""
    ids = sorted([UUID((await tenant.add_monitor(name=f"m{n}"))["id"]) for n in range(MONITORS)])
    now_ms = clock.now_ms()
    times = {
        "starts_at": to_datetime(now_ms).isoformat(),
        "ends_at": to_datetime(now_ms + 600_000).isoformat(),
    }
    answer = await tenant.client.post("/v1/maintenance-windows", json={"name": "w", "all": True, **times})
    assert answer.status_code == 201, answer.text
    await MaintenanceKeeper(database, clock, reconsider).sweep()
    clock.advance(60)
    now_ms = clock.now_ms()
    async with database.system() as session:
        await record(session, [ResultMessage(id_, 1, "default", now_ms, now_ms, DOWN) for id_ in ids], now_ms)
    assert await told(database) == []
    clock.advance(600)
    return ids


async def told(database: Database) -> list[str]:
    rows = "SELECT payload->>'transition' FROM outbox WHERE topic = 'incident' ORDER BY id"
    async with database.system() as session:
        return list((await session.execute(text(rows))).scalars())


async def is_free(database: Database, monitor_id: UUID) -> bool:
    """Whether a recorder could judge this monitor at once."""
    query = "SELECT count(*) FROM (SELECT FROM monitor_state WHERE monitor_id = :id FOR UPDATE SKIP LOCKED) AS s"
    async with database.system() as session:
        return bool(await session.scalar(text(query), {"id": monitor_id}))


async def test_results_wait_for_the_monitors_of_one_batch_only(
    failing: list[UUID], database: Database, clock: FakeClock
) -> None:
    free: list[list[bool]] = []

    async def look_on(session: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
        await reconsider(session, monitor_ids, now_ms)
        free.append([await is_free(database, monitor_id) for monitor_id in failing])

    assert await MaintenanceKeeper(database, clock, look_on).sweep() == MONITORS
    locked = [[place for place, is_unlocked in enumerate(each) if not is_unlocked] for each in free]
    assert locked == [[0, 1], [2, 3], [4]]
    assert await told(database) == ["opened"] * MONITORS


@pytest.mark.parametrize("crash_in", [0, 1, 2], ids=["first", "second", "last"])
async def test_a_sweep_that_dies_in_between_is_done_by_the_next_one_and_told_once(
    crash_in: int, failing: list[UUID], database: Database, clock: FakeClock
) -> None:
    batches: list[Sequence[UUID]] = []

    async def crash(session: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
        await reconsider(session, monitor_ids, now_ms)
        batches.append(monitor_ids)
        if len(batches) > crash_in:
            raise CrashError

    with pytest.raises(CrashError):
        await MaintenanceKeeper(database, clock, crash).sweep()
    assert len(await told(database)) == 2 * crash_in
    assert await MaintenanceKeeper(database, clock, reconsider).sweep() == len(failing)
    assert await told(database) == ["opened"] * MONITORS
    assert await MaintenanceKeeper(database, clock, reconsider).sweep() == 0


async def test_two_processes_do_not_look_at_the_same_edge_at_once(
    failing: list[UUID], database: Database, clock: FakeClock
) -> None:
    beside: list[int] = []

    async def look_beside(session: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
        beside.append(await MaintenanceKeeper(database, clock, _never).sweep())
        await reconsider(session, monitor_ids, now_ms)

    assert await MaintenanceKeeper(database, clock, look_beside).sweep() == len(failing)
    assert beside == [0, 0, 0]
    assert await told(database) == ["opened"] * MONITORS


async def _never(session: AsyncSession, monitor_ids: Sequence[UUID], now_ms: int) -> None:
    raise AssertionError(f"looked at {monitor_ids} at {now_ms} in {session}")
