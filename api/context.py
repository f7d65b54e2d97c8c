"""What the endpoints work with: built once where the process starts, handed to the application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from api.run_limit import RunLimit
from shared.contracts.sealing import Sealer
from shared.contracts.wire import RunNow, RunNowAnswer
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.services.idempotency import Answers
from shared.services.monitors import MonitorService


class CheckDesk(Protocol):
    """Runs a check now, on a worker of its region."""

    async def run(self, request: RunNow) -> RunNowAnswer:
        """Raises ``NoWorkerError`` and ``RunTimeoutError``."""
        ...


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

    @property
    def monitors(self) -> MonitorService:
        return MonitorService(self.sealer, self.clock)

    @property
    def answers(self) -> Answers:
        return Answers(self.sealer, self.clock)


def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


ContextDep = Annotated[Context, Depends(_context)]
