"""What the endpoints work with: built once where the process starts, handed to the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol
from uuid import UUID

from fastapi import Depends, Request

from api.run_limit import RunLimit
from shared.channels.record import Tools
from shared.channels.tools import build_tools
from shared.contracts.sealing import Sealer
from shared.contracts.wire import RunNow, RunNowAnswer
from shared.db.session import Database
from shared.domain.clock import Clock, SystemClock
from shared.http.guard import AddressPolicy
from shared.jobs.errors import JobNotStartedError
from shared.jobs.outcome import JobOutcome
from shared.services.alert_policies import AlertPolicyService
from shared.services.channels import ChannelService
from shared.services.idempotency import Answers
from shared.services.maintenance import MaintenanceService
from shared.services.monitors import MonitorService
from shared.services.pings import PingDesk
from shared.tasks.letters import DeadLetter, View


class CheckDesk(Protocol):
    """Runs a check now, on a worker of its region."""

    async def run(self, request: RunNow) -> RunNowAnswer:
        """Raises ``NoWorkerError`` and ``RunTimeoutError``."""
        ...


class JobDesk(Protocol):
    """Runs one of the platform's jobs now."""

    async def run(self, name: str, *, forced: bool = False) -> JobOutcome:
        """Raises ``NotFoundError`` and ``JobNotStartedError``."""
        ...


class NoJobs:
    """For an application without the platform's jobs beside it."""

    async def run(self, name: str, *, forced: bool = False) -> JobOutcome:  # noqa: ARG002 whatever is asked for
        raise JobNotStartedError(f"job {name}: this process runs no jobs")


class LetterDesk(Protocol):
    """Dead letters. Each call raises ``QueueUnavailableError`` when the queue does not answer."""

    async def page(
        self, view: View, *, task: str | None, before: UUID | None, limit: int
    ) -> Sequence[DeadLetter]: ...

    async def show(self, view: View, letter_id: UUID) -> DeadLetter:
        """Raises ``NotFoundError``."""
        ...

    async def replay(self, view: View, letter_id: UUID) -> None:
        """Raises ``NotFoundError``, ``ReplayNotPossibleError``."""
        ...

    async def delete(self, view: View, letter_id: UUID) -> None:
        """Raises ``NotFoundError``."""
        ...

    async def purge(self, view: View, before_ms: int) -> int: ...


class Regions(Protocol):
    """What is known of the regions that workers serve."""

    def warnings(self, regions: Iterable[str]) -> list[str]:
        """A sentence for each of these regions that no worker serves; none while that is not known."""
        ...


class NothingKnown:
    """For an application without a queue beside it."""

    def warnings(self, regions: Iterable[str]) -> list[str]:  # noqa: ARG002 whatever is asked for
        return []


def _nothing() -> None:
    """Nobody waits for commits."""


@dataclass(frozen=True)
class Context:
    """``on_commit`` is called after every change of a monitor: it wakes the relay."""

    database: Database
    sealer: Sealer
    clock: Clock
    desk: CheckDesk
    on_commit: Callable[[], None] = _nothing
    runs: RunLimit = field(default_factory=RunLimit)
    pings: PingDesk | None = None
    jobs: JobDesk = field(default_factory=NoJobs)
    letters: LetterDesk | None = None
    regions: Regions = field(default_factory=NothingKnown)
    tools: Tools = field(default_factory=lambda: build_tools(AddressPolicy(), SystemClock()))

    @property
    def channels(self) -> ChannelService:
        return ChannelService(self.sealer, self.clock, self.tools)

    @property
    def alert_policies(self) -> AlertPolicyService:
        return AlertPolicyService(self.clock)

    @property
    def monitors(self) -> MonitorService:
        return MonitorService(self.sealer, self.clock)

    @property
    def maintenance(self) -> MaintenanceService:
        return MaintenanceService(self.clock)

    @property
    def answers(self) -> Answers:
        return Answers(self.sealer, self.clock)


async def _context(request: Request) -> Context:  # async, or FastAPI would ask a thread for it, each time
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


ContextDep = Annotated[Context, Depends(_context)]
