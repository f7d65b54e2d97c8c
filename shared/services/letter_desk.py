"""The desk for dead letters as the API uses it: its failures in the words of the services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar
from uuid import UUID

from nats.errors import Error as NatsError

from shared.messaging.errors import MessagingError
from shared.services.errors import NotFoundError, QueueUnavailableError, ReplayNotPossibleError
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.errors import LetterNotFoundError, ReplayRefusedError
from shared.tasks.letters import DeadLetter, View

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class LetterDesk:
    """Each call raises ``QueueUnavailableError`` when the queue does not answer."""

    def __init__(self, desk: DeadLetterDesk) -> None:
        self._desk = desk

    async def page(self, view: View, *, task: str | None, before: UUID | None, limit: int) -> Sequence[DeadLetter]:
        return await _asked(self._desk.page, view, task=task, before=before, limit=limit)

    async def show(self, view: View, letter_id: UUID) -> DeadLetter:
        """Raises ``NotFoundError``."""
        return await _asked(self._desk.show, view, letter_id)

    async def replay(self, view: View, letter_id: UUID) -> None:
        """Raises ``NotFoundError``, ``ReplayNotPossibleError``."""
        await _asked(self._desk.replay, view, letter_id)

    async def delete(self, view: View, letter_id: UUID) -> None:
        """Raises ``NotFoundError``."""
        await _asked(self._desk.delete, view, letter_id)

    async def purge(self, view: View, before_ms: int) -> int:
        return await _asked(self._desk.purge, view, before_ms)


async def _asked(
    question: Callable[Arguments, Awaitable[Answer]], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Answer:
    try:
        return await question(*args, **kwargs)
    except LetterNotFoundError as error:
        raise NotFoundError("dead letter") from error
    except ReplayRefusedError as error:
        raise ReplayNotPossibleError(str(error)) from error
    except (MessagingError, NatsError, TimeoutError) as error:
        raise QueueUnavailableError("the queue does not answer: try again") from error
