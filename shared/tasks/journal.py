"""What is remembered of a task between two deliveries of its message: finished attempts, and when to go on.

Nothing is written while a task succeeds at its first delivery. From then on every step is a compare-and-set on the
journal, so that of two workers who believe that a task is theirs only one goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from nats.js.errors import NotFoundError

from shared.contracts.names import TASKS_BUCKET
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.errors import PublishRejectedError
from shared.messaging.owned_key import EXPECTED_SEQUENCE, OPERATION, WRONG_SEQUENCE
from shared.messaging.publisher import Publisher
from shared.tasks.errors import JournalConflictError, UnreadableJournalError
from shared.tasks.letters import Attempt

KEEP_SECONDS: Final = 14 * 86_400
"""A journal outlives the wait it describes by this much: so long may all workers be away."""

_MARKER_SECONDS: Final = 120
TTL: Final = "Nats-TTL"


class Journal(msgspec.Struct, frozen=True):
    """``starts`` counts runs begun since the last finished attempt, but for one at the first delivery.

    ``held_back`` says that the wait until ``not_before_ms`` comes from such lost runs; ``is_over`` that there is
    no further attempt: what is left to do is the dead letter.
    """

    attempts: tuple[Attempt, ...] = ()
    not_before_ms: int = 0
    starts: int = 0
    held_back: bool = False
    is_over: bool = False
    v: Literal[1] = 1

    def wait_seconds(self, now_ms: int) -> float:
        return max(self.not_before_ms - now_ms, 0) / 1000

    def begun(self) -> Journal:
        return msgspec.structs.replace(self, starts=self.starts + 1, held_back=False)

    def held(self, until_ms: int) -> Journal:
        return msgspec.structs.replace(self, not_before_ms=until_ms, held_back=True)

    def failed(self, attempt: Attempt, not_before_ms: int) -> Journal:
        return Journal((*self.attempts, attempt), not_before_ms)

    def ended(self, attempt: Attempt) -> Journal:
        return Journal((*self.attempts, attempt), is_over=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal as it was read or written; ``revision`` 0 means that nothing is stored."""

    journal: Journal
    revision: int


NOTHING: Final = Entry(Journal(), 0)
_decoder: Final = msgspec.json.Decoder(Journal)


class Journals:
    """The bucket ``tocsin_tasks``."""

    def __init__(self, connection: NatsConnection, publisher: Publisher) -> None:
        self._connection, self._publisher = connection, publisher
        self._stream = bucket_stream(TASKS_BUCKET)

    async def read(self, key: str) -> Entry:
        """What is stored under ``key``; raises ``UnreadableJournalError``, ``nats.errors.Error``."""
        try:
            # From the stream's leader: a direct read may be served by a replica that lags behind.
            message = await self._connection.js.get_last_msg(self._stream, bucket_subject(TASKS_BUCKET, key))
        except NotFoundError:
            return NOTHING
        if OPERATION in (message.headers or {}):
            return Entry(Journal(), message.seq or 0)
        try:
            return Entry(_decoder.decode(message.data or b""), message.seq or 0)
        except msgspec.DecodeError as error:
            raise UnreadableJournalError(f"journal {key}: {error}") from error

    async def write(self, key: str, journal: Journal, revision: int, now_ms: int) -> Entry:
        """Store ``journal`` if nobody wrote since ``revision``.

        Raises ``JournalConflictError``, and ``PublishError`` when it may not be stored.
        """
        keep = KEEP_SECONDS + math.ceil(journal.wait_seconds(now_ms))
        written = msgspec.json.encode(journal)
        return Entry(journal, await compare_and_set(self._publisher, key, written, revision, {TTL: f"{keep}s"}))

    async def drop(self, key: str, revision: int) -> None:
        """Forget a task that is settled; raises as ``write``."""
        # A marker stays for a while: a worker that wakes from a freeze must find that others went on without it.
        headers = {TTL: f"{_MARKER_SECONDS}s", OPERATION: "PURGE", "Nats-Rollup": "sub"}
        await compare_and_set(self._publisher, key, b"", revision, headers)


async def compare_and_set(
    publisher: Publisher, key: str, payload: bytes, revision: int, headers: dict[str, str]
) -> int:
    """Write a key of the bucket ``tocsin_tasks`` if nobody wrote it since ``revision``; answers the new revision.

    Raises ``JournalConflictError`` when somebody did, else ``PublishError``.
    """
    try:
        receipt = await publisher.send(
            bucket_subject(TASKS_BUCKET, key), payload, headers={EXPECTED_SEQUENCE: str(revision), **headers}
        )
    except PublishRejectedError as error:
        if error.err_code in WRONG_SEQUENCE:
            raise JournalConflictError(f"journal {key} was changed by another worker") from error
        raise
    return receipt.sequence
