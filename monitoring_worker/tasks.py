"""The tasks of a worker, as taskiq sees them: thin, so that the work can be tested without a broker."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import structlog
from taskiq import AsyncBroker

from monitoring_worker.checking import CheckDuty
from shared.contracts.names import RUN_CHECK_TASK
from shared.contracts.wire import CheckTask
from shared.tasks.failures import INVALID_ARGUMENT
from shared.tasks.letter_box import LetterBox, until_kept
from shared.tasks.worker import content_in_hand

log = structlog.get_logger(__name__)


def register(broker: AsyncBroker, duty: CheckDuty, letters: LetterBox) -> None:
    """Make the worker's tasks known to its broker, whose messages come through a ``MessageReceiver``."""

    async def run_check(order: dict[str, Any]) -> None:
        try:
            task = msgspec.convert(order, CheckTask)
        except msgspec.ValidationError as error:
            # Nothing says whose slot this was, so there is nothing to record but that it came.
            log.error("a task has unusable arguments", error=str(error))
            message = content_in_hand().message
            await until_kept(functools.partial(letters.put_message, message, INVALID_ARGUMENT, str(error)))
            return
        await duty.scheduled(task)

    broker.register_task(run_check, task_name=RUN_CHECK_TASK)
