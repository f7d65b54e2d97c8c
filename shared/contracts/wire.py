"""The messages between our processes: JSON, frozen, with a version each.

A reader refuses a version it does not know (``msgspec.ValidationError``) and ignores fields it does not know,
so that a newer writer and an older reader live side by side while a release rolls out.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import msgspec

from shared.domain.heartbeat import Signal
from shared.domain.result import CheckVerdict, SlotKey

Trigger = Literal["schedule", "manual"]


class RunSpec(msgspec.Struct, frozen=True):
    """What a worker runs. ``check`` is the stored form of a ``CheckSpec``: its secrets are still sealed."""

    check: dict[str, Any]
    timeout_seconds: float
    retries: int
    retry_delay_seconds: float


class Schedule(msgspec.Struct, frozen=True):
    """One value of the KV bucket ``tocsin_schedules``; its key is the monitor's id.

    ``starts_at_ms`` is where the current cadence begins: its first slot. ``run`` stays raw JSON: the scheduler
    copies it into each task without ever reading it.
    """

    monitor_id: UUID
    organisation_id: UUID
    revision: int
    interval_ms: int
    starts_at_ms: int
    regions: tuple[str, ...]
    run: msgspec.Raw
    v: Literal[1] = 1


class Progress(msgspec.Struct, frozen=True):
    """The leader's report: slots up to ``done_until_ms`` are acknowledged, up to ``planned_until_ms`` seen."""

    done_until_ms: int
    planned_until_ms: int
    scheduler: str
    v: Literal[1] = 1


class SlotOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of one monitor in one region."""

    monitor_id: UUID
    revision: int
    region: str
    slot_ms: int
    interval_ms: int
    v: Literal[1] = 1

    @property
    def key(self) -> SlotKey:
        return SlotKey(self.monitor_id, self.region, self.slot_ms)


class CheckOrder(SlotOrder, frozen=True, kw_only=True):
    """The argument of the task ``run_check`` as the scheduler writes it: what to run is copied, not read."""

    run: msgspec.Raw


class CheckTask(SlotOrder, frozen=True, kw_only=True):
    """The argument of the task ``run_check`` as the worker reads it."""

    run: RunSpec


class JobCall(msgspec.Struct, frozen=True):
    """What a slot in the platform's region runs: one of Tocsin's own jobs, by name."""

    job: str


class JobTask(SlotOrder, frozen=True, kw_only=True):
    """The argument of the task ``run_check`` as whoever reads the platform's region reads it."""

    run: JobCall


class ResultMessage(msgspec.Struct, frozen=True):
    """A verdict on its way into storage. ``started_at_ms`` is null for a slot that was not run.

    ``worker`` names who ran it; empty when there is nobody to blame for a failure but the target.
    """

    monitor_id: UUID
    revision: int
    region: str
    slot_ms: int
    started_at_ms: int | None
    verdict: CheckVerdict
    trigger: Trigger = "schedule"
    worker: str = ""
    v: Literal[1] = 1

    @property
    def key(self) -> SlotKey:
        return SlotKey(self.monitor_id, self.region, self.slot_ms)


class ResultBatch(msgspec.Struct, frozen=True):
    """What travels on ``results.<region>``: the results that became ready within moments of each other."""

    results: tuple[ResultMessage, ...]
    v: Literal[1] = 1


class EncodedResults(msgspec.Struct, frozen=True):
    """A ``ResultBatch`` as whoever measured its results before writes it."""

    results: tuple[msgspec.Raw, ...]
    v: Literal[1] = 1


class RunNow(msgspec.Struct, frozen=True):
    """A request on ``run.<region>``: check this now and answer with a ``RunNowAnswer``.

    ``monitor_id`` is null for a preview of an unsaved check; otherwise the result is stored as well.
    """

    run: RunSpec
    region: str
    monitor_id: UUID | None = None
    revision: int = 0
    store: bool = False
    v: Literal[1] = 1


class RunNowAnswer(msgspec.Struct, frozen=True):
    region: str
    slot_ms: int
    started_at_ms: int
    verdict: CheckVerdict
    v: Literal[1] = 1


class PingMessage(msgspec.Struct, frozen=True):
    """A ping on its way into storage. ``id`` is made by the receiver, so that storing it twice stores it once."""

    id: UUID
    token_hash: bytes
    received_ms: int
    signal: Signal
    exit_code: int | None = None
    run_id: str | None = None
    body: str | None = None
    v: Literal[1] = 1
