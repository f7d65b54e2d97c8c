"""The desk at which people look at dead letters: list, show, replay, delete, purge.

A desk serves one *view*: the letters of an organisation, or all. What is not in view does not exist for it.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
import structlog
from nats.js.errors import APIError, NotFoundError

from shared.contracts.names import DEAD_LETTERS_STREAM
from shared.domain.clock import to_milliseconds
from shared.messaging.connect import REQUEST_TIMEOUT_SECONDS, NatsConnection
from shared.messaging.errors import MessagingError, PublishError
from shared.messaging.publisher import Publisher
from shared.messaging.stream_state import StreamContent, stream_state
from shared.messaging.task_format import encode_task
from shared.tasks.errors import LetterNotFoundError, ReplayRefusedError
from shared.tasks.letter_box import LETTER_HEADER
from shared.tasks.letters import EVERYTHING, DeadLetter, View, decode_letter

_ANY: Final = "*"
_AT_ONCE: Final = 50
_GONE: Final = frozenset({10037, 10057})
"""What the server answers when a message is to be deleted that is not there any more."""

_log = structlog.get_logger(__name__)


class _Answer(msgspec.Struct):
    """What we need of the description of a stream."""

    class State(msgspec.Struct):
        subjects: dict[str, int] = {}

    state: State | None = None
    total: int = 0


class DeadLetterDesk:
    """Works on the stream itself: there is no copy of it anywhere."""

    def __init__(self, connection: NatsConnection, publisher: Publisher) -> None:
        self._connection, self._publisher = connection, publisher
        self._counted: _Counted | None = None

    async def page(
        self, view: View, *, task: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> Sequence[DeadLetter]:
        """Newest first, by the time they first failed; ``before`` is the id of the last one of the page before.

        Raises ``MessagingError``, ``nats.errors.Error``.
        """
        places = await self._newest(view, task, before, limit)
        found = []
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            found += await asyncio.gather(*(self._read(place) for place in some))
        return [stored.letter for stored in found if stored]

    async def show(self, view: View, letter_id: UUID) -> DeadLetter:
        """Raises ``LetterNotFoundError``, and as ``page``."""
        return (await self._find(view, letter_id)).letter

    async def replay(self, view: View, letter_id: UUID) -> None:
        """Send it where it came from, with all its attempts before it, and take the letter away.

        Done again after an interruption it is sent once: the message id is that of this failure. What fails again
        comes back under the same id. Raises ``LetterNotFoundError``, ``ReplayRefusedError``, and as ``page``.
        """
        stored = await self._find(view, letter_id)
        letter = stored.letter
        if letter.truncated:
            raise ReplayRefusedError("only the beginning of this message was kept: it cannot be sent again")
        message_id = f"replay:{letter.id}:{to_milliseconds(letter.failed_at)}"
        try:
            await self._publisher.send(
                letter.subject, message_of(letter), message_id=message_id, headers={LETTER_HEADER: str(letter.id)}
            )
        except PublishError as error:
            raise ReplayRefusedError(f"the queue did not take it ({error}): try again later") from error
        await self._remove(stored)
        _log.info("dead letter replayed", letter=str(letter.id), task=letter.task)

    async def delete(self, view: View, letter_id: UUID) -> None:
        """Raises as ``show``."""
        await self._remove(await self._find(view, letter_id))
        _log.info("dead letter deleted", letter=str(letter_id))

    async def purge(self, view: View, before_ms: int) -> int:
        """Delete those that failed last before a time, in milliseconds; answers how many. Raises as ``page``."""
        purged = 0
        async for subjects in self._subjects(view):
            for subject in subjects:
                # The id is as old as the first failure; a letter that came back is younger than that.
                if _id_in(subject).int >> 80 >= before_ms:
                    continue
                stored = await self._read(subject)
                if stored and to_milliseconds(stored.letter.failed_at) < before_ms:
                    await self._remove(stored)
                    purged += 1
        _log.info("dead letters purged", letters=purged)
        return purged

    async def count(self) -> Counter[str]:
        """How many there are, by task; listed anew only after a change, as it is asked for every few seconds.

        Raises as ``page``.
        """
        stream = await stream_state(self._connection, DEAD_LETTERS_STREAM)
        if self._counted is None or (self._counted.created, self._counted.content) != (
            stream.created,
            stream.state,
        ):
            found: Counter[str] = Counter()
            async for subjects in self._subjects(EVERYTHING):
                found.update(subject.split(".")[2] for subject in subjects)
            self._counted = _Counted(stream.created, stream.state, found)
        return self._counted.letters.copy()

    async def _newest(self, view: View, task: str | None, before: UUID | None, limit: int) -> list[str]:
        newest: list[str] = []
        end = None if before is None else str(before)
        async for subjects in self._subjects(view, task or _ANY):
            newest += [subject for subject in subjects if end is None or _written_id(subject) < end]
            newest = heapq.nlargest(limit, newest, key=_written_id)
        return newest

    async def _subjects(self, view: View, task: str = _ANY, letter: str = _ANY) -> AsyncIterator[list[str]]:
        """Subjects of letters, a page at a time as the server tells them."""
        for owner in view.owners():
            offset, total = 0, 1
            while offset < total:
                answer = await self._subject_page(f"dead.{owner}.{task}.{letter}", offset)
                subjects = list(answer.state.subjects) if answer.state else []
                if not subjects:
                    break
                yield subjects
                offset, total = offset + len(subjects), answer.total

    async def _subject_page(self, pattern: str, offset: int) -> _Answer:
        question = msgspec.json.encode({"subjects_filter": pattern, "offset": offset})
        answer = await self._connection.client.request(
            f"$JS.API.STREAM.INFO.{DEAD_LETTERS_STREAM}", question, timeout=REQUEST_TIMEOUT_SECONDS
        )
        try:
            found = msgspec.json.decode(answer.data, type=_Answer)
        except msgspec.DecodeError as error:
            raise MessagingError(f"stream {DEAD_LETTERS_STREAM}: unreadable description: {error}") from error
        if found.state is None:
            raise MessagingError(f"stream {DEAD_LETTERS_STREAM} is missing")
        return found

    async def _find(self, view: View, letter_id: UUID) -> _Stored:
        async for subjects in self._subjects(view, letter=str(letter_id)):
            if stored := await self._read(subjects[0]):
                return stored
        raise LetterNotFoundError(f"there is no dead letter {letter_id}")

    async def _read(self, subject: str) -> _Stored | None:
        try:
            message = await self._connection.js.get_last_msg(DEAD_LETTERS_STREAM, subject)
        except NotFoundError:  # replayed or deleted meanwhile
            return None
        try:
            return _Stored(decode_letter(message.data or b""), message.seq or 0)
        except msgspec.DecodeError as error:  # one of a newer release must not hide the others
            _log.error("dead letter cannot be read by this release", subject=subject, error=str(error))
            return None

    async def _remove(self, stored: _Stored) -> None:
        """By its number in the stream: what has failed again meanwhile under the same id must stay."""
        try:
            await self._connection.js.delete_msg(DEAD_LETTERS_STREAM, stored.sequence)
        except APIError as error:
            if error.err_code not in _GONE:
                raise


@dataclass(frozen=True, slots=True)
class _Stored:
    letter: DeadLetter
    sequence: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many letters there were by task, and what the stream looked like before they were listed."""

    created: datetime | None
    content: StreamContent | None
    letters: Counter[str]


def message_of(letter: DeadLetter) -> bytes:
    """The message that a replay sends."""
    if letter.form == "task":
        return encode_task(letter.task, letter.task_id or str(letter.id), bytes(letter.arguments))
    if letter.form == "json":
        return bytes(letter.arguments)
    return base64.b64decode(msgspec.json.decode(letter.arguments)["base64"])


def _id_in(subject: str) -> UUID:
    return UUID(_written_id(subject))


def _written_id(subject: str) -> str:
    """Sorts as the id itself does."""
    return subject.rpartition(".")[2]
