"""The platform's own jobs: when each is due, and which use case it is. A new one is a method here."""

from __future__ import annotations

from shared.jobs.context import JobContext
from shared.jobs.periodic import periodic
from shared.jobs.runner import Job
from shared.services import housekeeping
from shared.services.schedules import Reconciler
from shared.services.slot_audit import SlotAuditor
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import EVERYTHING

_DAY_MS = 86_400_000


class WorkerJobs:
    """Jobs that the schedulers send to the workers, as they send checks."""

    def __init__(self, dead_letters: DeadLetterDesk, retention_days: int, dead_letter_days: int) -> None:
        self._dead_letters = dead_letters
        self._retention_days, self._dead_letter_days = retention_days, dead_letter_days

    def all(self) -> list[Job]:
        return [
            self.create_partitions,
            self.drop_partitions,
            self.forget_answers,
            self.forget_api_keys,
            self.forget_deliveries,
            self.purge_dead_letters,
        ]

    @periodic("create_partitions", every="1h", lock="2m", timeout="1m", silence_after="6h")
    async def create_partitions(self, context: JobContext) -> None:
        async with context.transaction() as session:
            context.processed = await housekeeping.make_room(session, context.clock)

    @periodic("drop_partitions", every="6h", lock="5m", timeout="3m", silence_after="2d")
    async def drop_partitions(self, context: JobContext) -> None:
        async with context.transaction() as session:
            context.processed = await housekeeping.drop_old_results(session, context.clock, self._retention_days)

    @periodic("forget_answers", every="1h", lock="5m", timeout="3m", silence_after="1d")
    async def forget_answers(self, context: JobContext) -> None:
        async with context.transaction() as session:
            context.processed = await housekeeping.forget_answers(session, context.clock)

    @periodic("forget_api_keys", every="6h", lock="5m", timeout="3m", silence_after="2d")
    async def forget_api_keys(self, context: JobContext) -> None:
        async with context.transaction() as session:
            context.processed = await housekeeping.forget_dead_keys(session, context.clock)

    @periodic("forget_deliveries", every="6h", lock="5m", timeout="3m", silence_after="2d")
    async def forget_deliveries(self, context: JobContext) -> None:
        async with context.transaction() as session:
            context.processed = await housekeeping.forget_deliveries(session, context.clock, self._retention_days)

    @periodic("purge_dead_letters", every="6h", lock="10m", timeout="5m", silence_after="2d")
    async def purge_dead_letters(self, context: JobContext) -> None:
        before_ms = context.clock.now_ms() - self._dead_letter_days * _DAY_MS
        context.processed = await self._dead_letters.purge(EVERYTHING, before_ms)


class ApiJobs:
    """Jobs that mend or account for what schedulers and workers do: they go on while those are all gone."""

    def __init__(self, reconciler: Reconciler, auditor: SlotAuditor) -> None:
        self._reconciler, self._auditor = reconciler, auditor

    def all(self) -> list[Job]:
        return [self.reconcile_schedules, self.audit_slots]

    # A deleted bucket has to be full again within 30 s, and noticing that takes 10 s.
    @periodic("reconcile_schedules", every="10s", lock="20s", timeout="15s", silence_after="2m", runs_in="api")
    async def reconcile_schedules(self, context: JobContext) -> None:
        context.processed = await self._reconciler.reconcile()

    @periodic("audit_slots", every="1m", lock="5m", timeout="4m", silence_after="10m", runs_in="api")
    async def audit_slots(self, context: JobContext) -> None:
        await self._auditor.audit(context)
