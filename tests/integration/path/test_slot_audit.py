"""The audit finds every slot without a record, whoever lost it, and accounts for it."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime, to_milliseconds
from shared.domain.errors import MissedReason
from shared.domain.result import CheckVerdict, ResultStatus
from shared.domain.slots import Cadence, slots_between
from shared.services.recording import record
from shared.services.slot_audit import SlotAuditor, audit_since
from tests.integration.path.conftest import Tenant

UP = CheckVerdict(ResultStatus.UP)
clock = SystemClock()
MINUTES = 60_000
LENGTH = 30 * MINUTES


class Story:
    """A monitor that has been running for twenty minutes, and what is stored of it."""

    def __init__(self, database: Database, monitor_id: UUID, slots: list[int]) -> None:
        self.database, self.monitor_id, self.slots = database, monitor_id, slots

    async def store(self, *slots: int) -> None:
        async with self.database.system() as session:
            await record(session, [ResultMessage(self.monitor_id, 1, "default", slot, slot, UP) for slot in slots])

    async def missed(self) -> list[tuple[int, str]]:
        query = text("SELECT scheduled_at, error_kind FROM check_results WHERE status = 'missed' ORDER BY 1")
        async with self.database.system() as session:
            return [(to_milliseconds(row[0]), row[1]) for row in await session.execute(query)]

    async def unaccounted(self) -> list[int]:
        now = clock.now_ms()
        async with self.database.system() as session:
            return [key.slot_ms for key in (await audit_since(session, now - LENGTH, now)).unaccounted]


@pytest.fixture
async def story(tenant: Tenant) -> Story:
    monitor_id = await tenant.create(interval_seconds=10)
    start = clock.now_ms() - 20 * MINUTES
    async with tenant.database.system() as session:
        query = text("UPDATE schedule_periods SET starts_at = :start WHERE monitor_id = :id")
        await session.execute(query, {"start": to_datetime(start), "id": monitor_id})
    settled = clock.now_ms() - 2 * MINUTES
    cadence = Cadence(monitor_id, 10_000, start)
    story = Story(tenant.database, monitor_id, list(slots_between(cadence, start - 1, settled)))
    # Those that settle while the test runs are stored, so that they don't join the ones it looks for.
    await story.store(*slots_between(cadence, settled, settled + MINUTES))
    return story


def auditor(story: Story, reasons: dict[str, MissedReason] | None = None) -> SlotAuditor:
    return SlotAuditor(story.database, clock, lambda: reasons or {})


async def test_complete_books_balance(story: Story) -> None:
    await story.store(*story.slots)
    assert await story.unaccounted() == []
    assert await auditor(story).audit_once(LENGTH) == 0


async def test_lost_slots_are_named_and_stored_as_missed(story: Story) -> None:
    lost = [story.slots[0], story.slots[40], story.slots[-1]]
    await story.store(*(slot for slot in story.slots if slot not in lost))
    assert await story.unaccounted() == lost
    assert await auditor(story).audit_once(LENGTH) == 3
    assert await story.missed() == [(slot, "scheduler_gap") for slot in lost]
    assert await story.unaccounted() == []


async def test_a_day_in_which_nothing_ran_is_accounted_for(story: Story) -> None:
    async with story.database.system() as session:
        query = text("UPDATE schedule_periods SET starts_at = now() - interval '3 hours'")
        await session.execute(query)
    assert await auditor(story).catch_up() > 3 * 360 - len(story.slots) - 10
    assert await story.unaccounted() == []


async def test_the_reason_is_the_regions(story: Story) -> None:
    await story.store(*story.slots[1:])
    await auditor(story, {"default": MissedReason.WORKER_GAP}).audit_once(LENGTH)
    assert await story.missed() == [(story.slots[0], "worker_gap")]


async def test_a_result_that_comes_after_all_replaces_the_record(story: Story) -> None:
    await story.store(*story.slots[1:])
    await auditor(story).audit_once(LENGTH)
    await story.store(story.slots[0])
    assert await story.missed() == []


async def test_slots_that_may_still_be_run_are_left_alone(story: Story) -> None:
    async with story.database.system() as session:
        await session.execute(text("DELETE FROM check_results"))
    assert max(await story.unaccounted()) <= clock.now_ms() - 2 * MINUTES


async def test_a_slot_too_many_does_not_hide_a_lost_one(story: Story, tenant: Tenant) -> None:
    await tenant.pause(story.monitor_id)
    await story.store(*story.slots[1:], story.slots[5] + 1)
    assert await story.unaccounted() == [story.slots[0]]


async def test_nothing_is_due_of_a_monitor_that_is_gone(story: Story, tenant: Tenant) -> None:
    await tenant.delete(story.monitor_id)
    assert await story.unaccounted() == []
