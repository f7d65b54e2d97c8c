"""The audit finds every slot without a record, whoever lost it, and accounts for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime, to_milliseconds
from shared.domain.errors import MissedReason
from shared.domain.result import CheckVerdict, ResultStatus
from shared.domain.slots import Cadence, slots_between
from shared.jobs.context import JobContext
from shared.jobs.periodic import specification_of
from shared.services.platform_jobs import ApiJobs
from shared.services.recording import record
from shared.services.slot_audit import SlotAuditor, account, audit_latest, audit_since
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
            messages = [ResultMessage(self.monitor_id, 1, "default", slot, slot, UP) for slot in slots]
            await record(session, messages, max(slots))

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


async def audit(story: Story, reasons: dict[str, MissedReason] | None = None) -> None:
    """Audit the last half hour, and account for what is missing."""
    async with story.database.system() as session:
        await account(session, await audit_latest(session, LENGTH, clock.now_ms()), reasons or {})


async def run_the_job(story: Story, checkpoint: dict[str, Any] | None = None) -> JobContext:
    """One run of the job; answers its context, whose checkpoint is what it committed."""
    async with story.database.system() as session:
        await session.execute(
            text("""
            INSERT INTO jobs (name, every_seconds, silence_after_seconds, runs_in, schedule_id, registered_at)
            VALUES ('audit_slots', 60, 600, 'api', gen_random_uuid(), now()) ON CONFLICT DO NOTHING
        """)
        )
    context = JobContext(
        specification_of(ApiJobs.audit_slots),
        story.database,
        clock,
        due_at_ms=clock.now_ms(),
        fence=0,
        checkpoint=checkpoint,
        holds_lock=lambda: True,
    )
    await SlotAuditor(dict, retention_days=90).audit(context)
    return context


async def test_complete_books_balance(story: Story) -> None:
    await story.store(*story.slots)
    assert await story.unaccounted() == []
    await audit(story)
    assert await story.missed() == []


async def test_lost_slots_are_named_and_stored_as_missed(story: Story) -> None:
    lost = [story.slots[0], story.slots[40], story.slots[-1]]
    await story.store(*(slot for slot in story.slots if slot not in lost))
    assert await story.unaccounted() == lost
    await audit(story)
    assert await story.missed() == [(slot, "scheduler_gap") for slot in lost]
    assert await story.unaccounted() == []


async def test_a_day_in_which_nothing_ran_is_accounted_for(story: Story) -> None:
    async with story.database.system() as session:
        query = text("UPDATE schedule_periods SET starts_at = now() - interval '3 hours'")
        await session.execute(query)
    context = await run_the_job(story)
    assert len(await story.missed()) > 3 * 360 - 20
    assert await story.unaccounted() == []
    assert context.checkpoint is not None
    assert clock.now_ms() - context.checkpoint["audited_until_ms"] < MINUTES


async def test_an_outage_of_any_length_is_accounted_for_from_the_checkpoint_on(story: Story) -> None:
    async with story.database.system() as session:
        await session.execute(text("UPDATE schedule_periods SET starts_at = now() - interval '10 days'"))
        await session.execute(text("UPDATE schedule_periods SET interval_ms = 600000"))
    days = clock.now_ms() - 9 * 24 * 60 * MINUTES
    await run_the_job(story, {"audited_until_ms": days})
    missed = [slot for slot, _ in await story.missed()]
    assert len(missed) in range(9 * 144 - 3, 9 * 144 + 3)
    assert abs(missed[0] - days) < 40 * MINUTES


async def test_the_reason_is_the_regions(story: Story) -> None:
    await story.store(*story.slots[1:])
    await audit(story, {"default": MissedReason.WORKER_GAP})
    assert await story.missed() == [(story.slots[0], "worker_gap")]


async def test_a_result_that_comes_after_all_replaces_the_record(story: Story) -> None:
    await story.store(*story.slots[1:])
    await audit(story)
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


async def test_a_check_run_by_hand_does_not_hide_a_lost_one(story: Story) -> None:
    await story.store(*story.slots[1:])
    by_hand = story.slots[5] + 1
    message = ResultMessage(story.monitor_id, 1, "default", by_hand, by_hand, UP, trigger="manual")
    now = clock.now_ms()
    async with story.database.system() as session:
        await record(session, [message], by_hand)
        books = await audit_since(session, now - LENGTH, now)
    assert [key.slot_ms for key in books.unaccounted] == [story.slots[0]]
    assert books.unscheduled == ()


async def test_nothing_is_due_of_a_monitor_that_is_gone(story: Story, tenant: Tenant) -> None:
    await tenant.delete(story.monitor_id)
    assert await story.unaccounted() == []
