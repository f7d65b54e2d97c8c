"""When a job is due: by the same slots as a monitor, so that the same schedulers can send it."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

import msgspec

from shared.contracts.wire import JobCall, Schedule
from shared.db.models import JobState
from shared.domain.clock import to_milliseconds
from shared.domain.region import PLATFORM_REGION
from shared.domain.slots import Cadence, latest_slot_ms

_NAMESPACE: Final = UUID("6d0f5f0e-3c0f-5b9e-9a86-0d5d2f2b7a11")
_NOBODY: Final = UUID(int=0)


def job_id(name: str) -> UUID:
    """The id under which a job is scheduled, the same everywhere."""
    return uuid5(_NAMESPACE, name)


def cadence_of(job: JobState) -> Cadence:
    """A job is due when it is registered first, and then at its slots."""
    return Cadence(job.schedule_id, job.every_seconds * 1000, to_milliseconds(job.registered_at))


def is_due(job: JobState, now_ms: int) -> bool:
    """Whether a slot has come since the last success; a run that failed leaves its job due."""
    slot_ms = latest_slot_ms(cadence_of(job), now_ms)
    if slot_ms is None:
        return False
    return job.last_success_at is None or to_milliseconds(job.last_success_at) < slot_ms


def schedule_of_job(job: JobState) -> Schedule:
    """What the bucket of schedules holds for a job."""
    cadence = cadence_of(job)
    return Schedule(
        monitor_id=cadence.monitor_id,
        organisation_id=_NOBODY,
        revision=job.revision,
        interval_ms=cadence.interval_ms,
        starts_at_ms=cadence.starts_at_ms,
        regions=(PLATFORM_REGION,),
        run=msgspec.Raw(msgspec.json.encode(JobCall(job.name))),
    )
