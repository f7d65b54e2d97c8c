"""When a job is due: at its slots, until a run has succeeded."""

from __future__ import annotations

import msgspec
import pytest

from shared.contracts.wire import JobCall
from shared.db.models import JobState
from shared.domain.clock import to_datetime
from shared.domain.slots import latest_slot_ms, next_slot_ms
from shared.jobs.schedule import cadence_of, is_due, job_id, schedule_of_job

REGISTERED = 1_800_000_000_000
HOUR = 3_600_000


def job(last_success_ms: int | None = None) -> JobState:
    return JobState(
        name="tidy",
        every_seconds=3600,
        schedule_id=job_id("tidy"),
        revision=4,
        registered_at=to_datetime(REGISTERED),
        last_success_at=None if last_success_ms is None else to_datetime(last_success_ms),
    )


SECOND = next_slot_ms(cadence_of(job()), REGISTERED)


@pytest.mark.parametrize(
    ("last_success_ms", "now_ms", "expected"),
    [
        pytest.param(None, REGISTERED - 1, False, id="before it is registered"),
        pytest.param(None, REGISTERED, True, id="at once"),
        pytest.param(REGISTERED + 5, SECOND - 1, False, id="done, and not due again"),
        pytest.param(REGISTERED + 5, SECOND, True, id="at its next slot"),
        pytest.param(SECOND, SECOND, False, id="done at the very slot"),
        pytest.param(SECOND + 7, SECOND + HOUR - 1, False, id="done for this slot"),
        pytest.param(SECOND - 1, SECOND + 9 * HOUR, True, id="several slots were missed"),
        pytest.param(SECOND + 9 * HOUR, SECOND, False, id="the clock went back"),
    ],
)
def test_a_job_is_due_from_its_slot_until_it_succeeds(
    last_success_ms: int | None, now_ms: int, expected: bool
) -> None:
    assert is_due(job(last_success_ms), now_ms) is expected


def test_a_job_is_scheduled_like_a_monitor_in_the_platforms_region() -> None:
    schedule = schedule_of_job(job())
    assert (schedule.monitor_id, schedule.revision, schedule.regions) == (job_id("tidy"), 4, ("platform",))
    assert (schedule.interval_ms, schedule.starts_at_ms) == (HOUR, REGISTERED)
    assert msgspec.json.decode(schedule.run, type=JobCall) == JobCall("tidy")
    assert latest_slot_ms(cadence_of(job()), REGISTERED) == REGISTERED


def test_the_id_of_a_job_is_the_same_in_every_process_and_release() -> None:
    assert str(job_id("audit_slots")) == str(job_id("audit_slots"))
    assert job_id("audit_slots") != job_id("drop_partitions")
