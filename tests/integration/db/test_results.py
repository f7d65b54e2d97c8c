"""Results and states as the recorder writes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from shared.db.base import new_id
from shared.db.errors import is_missing_partition
from shared.db.repositories.results import ResultRow, drop_partitions, ensure_partitions, store_results
from shared.db.repositories.state import lock_states, save_states
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime, to_milliseconds
from shared.domain.result import ResultStatus, SlotKey
from shared.domain.state import MonitorState, MonitorStatus, RegionState, Rules
from shared.services.housekeeping import forget_answers, make_room
from shared.testing.clock import FakeClock
from tests.integration.db.tenants import add_monitor, add_organisation

NOW = to_datetime(SystemClock().now_ms() // 1000 * 1000)


def result(monitor_id: UUID, **fields: Any) -> ResultRow:
    row = ResultRow(monitor_id, "default", NOW, NOW, 1, "up", 1, None, None, 1.5, "schedule", '{"timings_ms": {}}')
    return replace(row, **fields)


def missed(monitor_id: UUID) -> ResultRow:
    return result(monitor_id, status="missed", started_at=None, error_kind="worker_gap", total_ms=None)


async def store(database: Database, *rows: ResultRow) -> set[SlotKey]:
    async with database.system() as session:
        return await store_results(session, rows)


async def statuses(database: Database) -> list[str]:
    async with database.system() as session:
        return list(await session.scalars(text("SELECT status FROM check_results ORDER BY scheduled_at")))


@pytest.fixture
async def monitor_id(database: Database) -> UUID:
    return await add_monitor(database, await add_organisation(database, "alice"), NOW)


async def test_a_slot_is_stored_once(database: Database, monitor_id: UUID) -> None:
    key = SlotKey(monitor_id, "default", to_milliseconds(NOW))
    assert await store(database, result(monitor_id)) == {key}
    assert await store(database, result(monitor_id, status="down")) == set()
    assert await statuses(database) == ["up"]


async def test_a_real_result_replaces_a_missed_one_and_never_the_other_way(
    database: Database, monitor_id: UUID
) -> None:
    assert await store(database, missed(monitor_id))
    assert await store(database, missed(monitor_id)) == set()
    assert await store(database, result(monitor_id, status="down"))
    assert await store(database, missed(monitor_id)) == set()
    assert await statuses(database) == ["down"]


async def test_the_tenant_is_the_monitors_and_unknown_monitors_are_skipped(
    database: Database, monitor_id: UUID
) -> None:
    written = await store(database, result(new_id()), result(monitor_id))
    assert {key.monitor_id for key in written} == {monitor_id}
    async with database.system() as session:
        query = "SELECT r.organisation_id = m.organisation_id FROM check_results r, monitors m"
        assert list(await session.scalars(text(query))) == [True]


async def test_writers_of_the_same_slots_in_opposite_order_do_not_deadlock(
    database: Database, monitor_id: UUID
) -> None:
    rows = [missed(monitor_id)] + [
        replace(missed(monitor_id), scheduled_at=NOW - timedelta(seconds=n)) for n in range(1, 400)
    ]
    await store(database, *rows)
    real = [replace(row, status="up") for row in rows]
    written = await asyncio.gather(*(store(database, *order) for order in (real, real[::-1]) * 4))
    assert max(len(keys) for keys in written) == 400
    assert sum(len(keys) for keys in written) == 400


async def test_a_day_without_a_partition_is_refused_until_it_has_one(database: Database, monitor_id: UUID) -> None:
    late = result(monitor_id, scheduled_at=NOW + timedelta(days=40))
    with pytest.raises(IntegrityError) as refused:
        await store(database, late)
    assert is_missing_partition(refused.value)
    async with database.system() as session:
        assert await ensure_partitions(session, [late.scheduled_at.date()]) == 1
        assert await ensure_partitions(session, [late.scheduled_at.date()]) == 0
    assert await store(database, late)


async def test_partitions_hold_days_in_utc_whatever_the_session_says(database: Database, monitor_id: UUID) -> None:
    midnight = datetime(2031, 5, 6, tzinfo=UTC)
    async with database.system() as session:
        await session.execute(text("SET LOCAL timezone = 'Asia/Tokyo'"))
        assert await ensure_partitions(session, [midnight.date()]) == 1
        await store_results(session, [result(monitor_id, scheduled_at=midnight)])
        last = midnight + timedelta(days=1) - timedelta(milliseconds=1)
        await store_results(session, [result(monitor_id, scheduled_at=last)])
        assert await session.scalar(text("SELECT count(*) FROM check_results")) == 2


async def test_partitions_are_created_by_many_at_once(database: Database) -> None:
    days = [datetime(2032, 1, day, tzinfo=UTC).date() for day in range(1, 6)]

    async def ensure() -> int:
        async with database.system() as session:
            return await ensure_partitions(session, days)

    assert sum(await asyncio.gather(*(ensure() for _ in range(5)))) == 5


async def test_old_partitions_are_dropped_whole(database: Database, monitor_id: UUID) -> None:
    await store(database, result(monitor_id))
    # The template may have been made on the day after this module was read: its days are counted, not known.
    number = text("SELECT count(*) FROM pg_inherits WHERE inhparent = 'check_results'::regclass")
    async with database.system() as session:
        await ensure_partitions(session, [NOW.date() - timedelta(days=1)])
        days = await session.scalar(number)
        assert await drop_partitions(session, NOW.date()) == 1
        assert await session.scalar(text("SELECT count(*) FROM check_results")) == 1
        assert await drop_partitions(session, NOW.date() + timedelta(days=100)) == days - 1
        assert await session.scalar(text("SELECT count(*) FROM check_results")) == await session.scalar(number) == 0


async def test_housekeeping_makes_room_and_forgets_old_answers(database: Database, monitor_id: UUID) -> None:
    async with database.system() as session:
        for age in (2, 0):
            await session.execute(
                text(
                    "INSERT INTO idempotency_keys (organisation_id, key, request_hash, created_at)"
                    f" SELECT id, '{age}', '', now() + interval '{30 - age} days' FROM organisations"
                )
            )
    later = FakeClock(to_milliseconds(NOW + timedelta(days=30)))
    async with database.system() as session:
        assert await make_room(session, later) > 0
        assert await forget_answers(session, later) == 1
    assert await store(database, result(monitor_id, scheduled_at=NOW + timedelta(days=37)))
    async with database.system() as session:
        assert list(await session.scalars(text("SELECT key FROM idempotency_keys"))) == ["0"]


async def test_states_are_locked_with_their_monitors_rules_and_saved(database: Database, monitor_id: UUID) -> None:
    async with database.system() as session:
        rows = await lock_states(session, [monitor_id, new_id()])
        assert set(rows) == {monitor_id}
        row = rows[monitor_id]
        assert (row.revision, row.rules, row.has_parents) == (1, Rules(), False)
        assert row.state == MonitorState(MonitorStatus.PENDING, to_milliseconds(NOW))
        failing = RegionState(to_milliseconds(NOW) + 5, MonitorStatus.DOWN, ResultStatus.DOWN, 7, 3, 0)
        down = MonitorState(
            MonitorStatus.DOWN,
            to_milliseconds(NOW),
            {"default": failing},
            MonitorStatus.DOWN,
            MonitorStatus.MAINTENANCE,
            to_milliseconds(NOW) + 9,
        )
        await save_states(session, [replace(row, state=down, last_result='{"status": "down"}')])
    async with database.system() as session:
        (row,) = (await lock_states(session, [monitor_id])).values()
        assert row.state == down
        await save_states(session, [row])
        assert await session.scalar(text("SELECT last_result->>'status' FROM monitor_state")) == "down"


async def test_a_locked_state_makes_a_recorder_wait_and_no_editor(database: Database, monitor_id: UUID) -> None:
    async with database.system() as first:
        await lock_states(first, [monitor_id])
        async with database.system() as editor:
            await editor.execute(text("UPDATE monitors SET name = 'edited'"))
        async with database.system() as second:
            await second.execute(text("SET LOCAL lock_timeout = '100ms'"))
            with pytest.raises(Exception, match="lock timeout"):
                await lock_states(second, [monitor_id])
