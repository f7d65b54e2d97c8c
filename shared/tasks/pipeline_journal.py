"""Records of pipelines that are tasks, in the bucket of the tasks' own journals.

Each write is a compare-and-set: of two workers who believe that a run is theirs only one goes on.
"""

from __future__ import annotations

from typing import Final

import msgspec
from nats.js.errors import NotFoundError

from shared.contracts.names import TASKS_BUCKET
from shared.domain.clock import Clock
from shared.messaging.connect import NatsConnection
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.publisher import Publisher
from shared.tasks.errors import UnreadableJournalError
from shared.tasks.journal import KEEP_SECONDS, TTL, compare_and_set
from shared.tasks.pipeline_record import PipelineRecord

_decoder: Final = msgspec.json.Decoder(PipelineRecord)


class PipelineJournals:
    """Where the records of all runs are; they can be read for two weeks after their last change."""

    def __init__(self, connection: NatsConnection, publisher: Publisher, clock: Clock) -> None:
        self._connection, self._publisher = connection, publisher
        self.clock = clock

    async def read(self, task: str, task_id: str) -> PipelineRecord | None:
        """What happened in a run so far; raises ``UnreadableJournalError``, ``nats.errors.Error``."""
        return await self.of(task, task_id).load()

    def of(self, task: str, task_id: str, run: str | None = None) -> PipelineJournal:
        """The journal of a task. ``run`` begins anew where another run has ended; None reads whatever is there."""
        key = f"pipeline.{task}.{task_id.replace(':', '=')}"
        return PipelineJournal(key, run, self._connection, self._publisher)


class PipelineJournal:
    """The record of one run. To be loaded before it is saved."""

    def __init__(self, key: str, run: str | None, connection: NatsConnection, publisher: Publisher) -> None:
        self._key, self._run, self._connection, self._publisher = key, run, connection, publisher
        self._revision = 0

    async def load(self) -> PipelineRecord | None:
        """Raises ``UnreadableJournalError``, ``nats.errors.Error``."""
        subject = bucket_subject(TASKS_BUCKET, self._key)
        try:
            # From the stream's leader: a direct read may be served by a replica that lags behind.
            message = await self._connection.js.get_last_msg(bucket_stream(TASKS_BUCKET), subject)
        except NotFoundError:
            return None
        self._revision = message.seq or 0
        if not message.data:
            return None  # what the server leaves for a while in place of a record whose time is over
        try:
            record = _decoder.decode(message.data)
        except msgspec.DecodeError as error:
            raise UnreadableJournalError(f"record {self._key}: {error}") from error
        return record if self._run in (None, record.run) else None

    async def save(self, record: PipelineRecord) -> None:
        """Raises ``JournalConflictError`` when somebody else has written, else ``PublishError``."""
        record = msgspec.structs.replace(record, run=self._run or record.run)
        written, headers = msgspec.json.encode(record), {TTL: f"{KEEP_SECONDS}s"}
        self._revision = await compare_and_set(self._publisher, self._key, written, self._revision, headers)
