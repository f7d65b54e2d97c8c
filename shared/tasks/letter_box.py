"""Putting dead letters into their stream: always before the message that failed is settled."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec
import structlog
from nats.aio.msg import Msg

from shared.contracts.names import PLATFORM
from shared.domain.clock import to_datetime, to_milliseconds
from shared.messaging.cancellation import is_cancelled
from shared.messaging.connect import describe
from shared.messaging.errors import PublishError
from shared.messaging.publisher import Publisher
from shared.messaging.task_format import TaskFormatter
from shared.tasks.failures import MESSAGE_LIMIT, UNKNOWN_TASK
from shared.tasks.letters import (
    UNREADABLE,
    Attempt,
    DeadLetter,
    Form,
    LetterError,
    encode_letter,
    letter_id,
    raw_arguments,
)

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
LETTER_HEADER: Final = "Tocsin-Dead-Letter"
"""On a replayed message: the id of its letter, so that what fails again comes back under the same id."""

_log = structlog.get_logger(__name__)
_formatter: Final = TaskFormatter()


def worker_name() -> str:
    """Of this process, as journals and letters show it."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def until_kept(put: Callable[[], Awaitable[None]]) -> None:
    """Put a letter again and again until it is kept, for whoever can't leave the message to its next delivery."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            await put()
            return
        except PublishError as error:
            _log.error("dead letter could not be kept yet", error=describe(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if is_cancelled():
                raise asyncio.CancelledError from error


class LetterBox:
    """Writes letters. Each has an id that follows from its message, so writing twice makes one letter."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._worker = worker_name()

    async def put_task(
        self, message: Msg, *, task: str, task_id: str, argument: object, attempts: Sequence[Attempt]
    ) -> None:
        """A task after its last attempt. Raises ``PublishError``: then there is no letter yet."""
        last = attempts[-1]
        letter = DeadLetter(
            id=_id_of(message, last.ended_ms),
            task=task,
            task_id=task_id,
            organisation_id=organisation_of(message.subject),
            arguments=msgspec.Raw(msgspec.json.encode(argument)),
            error=LetterError(last.error_kind, last.message),
            attempts=tuple(attempts),
            failed_at=to_datetime(last.ended_ms),
            worker=last.worker,
            subject=message.subject,
        )
        await self._put(letter)

    async def put_message(self, message: Msg, kind: str, reason: str) -> None:
        """A message that nobody can work on, as bytes; raises ``PublishError``."""
        task, task_id, arguments, form, truncated = _content_of(message, kind)
        moment_ms = to_milliseconds(message.metadata.timestamp)
        await self._put_raw(
            DeadLetter(
                id=_id_of(message, moment_ms),
                task=task,
                task_id=task_id,
                organisation_id=organisation_of(message.subject),
                arguments=arguments,
                error=LetterError(kind, reason[:MESSAGE_LIMIT]),
                attempts=(),
                failed_at=to_datetime(moment_ms),
                worker=self._worker,
                subject=message.subject,
                form=form,
                truncated=truncated,
            )
        )

    async def put_content(
        self,
        *,
        task: str,
        subject: str,
        payload: bytes,
        identity: str,
        moment_ms: int,
        failed_ms: int,
        kind: str,
        reason: str,
    ) -> None:
        """A part of a message that was refused; ``payload`` is what a replay sends to ``subject``.

        ``identity`` and ``moment_ms`` make the id of the letter, so they must not change when it is put again.
        Raises ``PublishError``.
        """
        arguments, form, truncated = raw_arguments(payload)
        await self._put_raw(
            DeadLetter(
                id=letter_id(moment_ms, identity),
                task=task,
                task_id=None,
                organisation_id=None,
                arguments=arguments,
                error=LetterError(kind, reason[:MESSAGE_LIMIT]),
                attempts=(),
                failed_at=to_datetime(failed_ms),
                worker=self._worker,
                subject=subject,
                form=form,
                truncated=truncated,
            )
        )

    async def _put_raw(self, letter: DeadLetter) -> None:
        failed = Attempt(to_milliseconds(letter.failed_at), letter.error.kind, letter.error.message, letter.worker)
        await self._put(msgspec.structs.replace(letter, attempts=(failed,)))

    async def _put(self, letter: DeadLetter) -> None:
        message_id = f"{letter.id}:{to_milliseconds(letter.failed_at)}"
        await self._publisher.send(letter.place, encode_letter(letter), message_id=message_id)
        _log.error(
            "dead letter written",
            task=letter.task,
            task_id=letter.task_id,
            letter=str(letter.id),
            attempts=len(letter.attempts),
            error=letter.error.kind,
        )


def organisation_of(subject: str) -> UUID | None:
    """Whose task waits on ``subject``; None for the platform's own."""
    stream, _, rest = subject.partition(".")
    owner = rest.partition(".")[0]
    if stream != "tasks" or owner == PLATFORM:
        return None
    try:
        return UUID(owner)
    except ValueError:  # not one of our subjects
        return None


def _id_of(message: Msg, moment_ms: int) -> UUID:
    if kept := (message.headers or {}).get(LETTER_HEADER):
        return UUID(kept)
    metadata = message.metadata
    stored_ms = to_milliseconds(metadata.timestamp)
    return letter_id(moment_ms, f"{metadata.stream}:{metadata.sequence.stream}:{stored_ms}")


def _content_of(message: Msg, kind: str) -> tuple[str, str | None, msgspec.Raw, Form, bool]:
    if kind == UNKNOWN_TASK:
        task = _formatter.loads(message.data)
        name = message.subject.rpartition(".")[2]
        if len(task.args) == 1 and task.task_name == name:
            return name, task.task_id, msgspec.Raw(msgspec.json.encode(task.args[0])), "task", False
    return (UNREADABLE, None, *raw_arguments(message.data))
