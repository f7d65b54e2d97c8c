"""The tasks of a worker, as taskiq sees them: thin, so that the work can be tested without a broker."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from taskiq import AsyncBroker

from monitoring_worker.checking import CheckDuty
from shared.contracts.names import RUN_CHECK_TASK
from shared.contracts.wire import CheckTask

log = structlog.get_logger(__name__)


def register(broker: AsyncBroker, duty: CheckDuty) -> None:
    """Make the worker's tasks known to its broker."""

    async def run_check(order: dict[str, Any]) -> None:
        try:
            task = msgspec.convert(order, CheckTask)
        except msgspec.ValidationError as error:
            # Nothing says whose slot this was, so there is nothing to record but that it came.
            log.error("a task with unusable arguments is dropped", error=str(error))
            return
        await duty.scheduled(task)

    broker.register_task(run_check, task_name=RUN_CHECK_TASK)
