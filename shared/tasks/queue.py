"""Sending tasks."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from shared.contracts.names import task_subject
from shared.domain.clock import Clock
from shared.messaging.publisher import Publisher
from shared.messaging.task_format import encode_task
from shared.tasks.declaration import Task
from shared.tasks.errors import ArgumentTooLargeError
from shared.tasks.execution import NOT_BEFORE_HEADER

ARGUMENT_LIMIT: Final = 512 * 1024
"""In bytes of JSON: message, journal and dead letter must fit into what a server takes."""

_TASK_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_=:-]{0,127}")
ArgumentType = TypeVar("ArgumentType", bound=msgspec.Struct)


class TaskQueue:
    """The stream ``TASKS``, for those who send."""

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher, self._clock = publisher, clock

    async def send(
        self,
        task: Task[ArgumentType, Any],
        argument: ArgumentType,
        *,
        task_id: str,
        organisation_id: UUID | None = None,
        delay: float = 0.0,
    ) -> None:
        """Have the task run, at the earliest after ``delay`` seconds; returns when the queue has stored it.

        Sent again under the same ``task_id`` within an hour it is not run again. ``organisation_id`` None is the
        platform itself. Raises ``ArgumentTooLargeError``, ``ValueError`` for an id that is not 1 to 128 letters,
        digits or ``_=:-``, and ``PublishError`` when it may not be stored: send it again then.
        """
        if not _TASK_ID.fullmatch(task_id):
            raise ValueError(f"task id {task_id!r}: use 1 to 128 letters, digits, and _ = : -")
        payload = msgspec.json.encode(argument)
        if len(payload) > ARGUMENT_LIMIT:
            raise ArgumentTooLargeError(
                f"task {task.name}: an argument of {len(payload)} bytes; at most {ARGUMENT_LIMIT} fit"
            )
        headers = {NOT_BEFORE_HEADER: str(self._clock.now_ms() + round(delay * 1000))} if delay > 0 else None
        await self._publisher.send(
            task_subject(organisation_id, task.name),
            encode_task(task.name, task_id, payload),
            message_id=f"{task.name}:{task_id}",
            headers=headers,
        )
