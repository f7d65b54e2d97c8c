"""Streams, buckets and consumers as data: what an installation has on its server, and with which settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from shared.contracts.names import (
    CHECKS_STREAM,
    CHECKS_SUBJECTS,
    DEAD_LETTERS_CONSUMER,
    DEAD_LETTERS_STREAM,
    DEAD_LETTERS_SUBJECTS,
    LEADER_BUCKET,
    LOCKS_BUCKET,
    PINGS_CONSUMER,
    PINGS_STREAM,
    PINGS_SUBJECTS,
    PROGRESS_BUCKET,
    RECORDER_CONSUMER,
    RESULTS_STREAM,
    RESULTS_SUBJECTS,
    SCHEDULES_BUCKET,
    TASKS_BUCKET,
    TASKS_CONSUMER,
    TASKS_STREAM,
    TASKS_SUBJECTS,
    region_filter,
    worker_consumer,
)

DUPLICATE_WINDOW_SECONDS: Final = 120.0
TASKS_DUPLICATE_WINDOW_SECONDS: Final = 3600.0
CHECKS_MAX_AGE_SECONDS: Final = 2 * 86_400.0
LEADER_MARKER_SECONDS: Final = 60.0
LOCK_MARKER_SECONDS: Final = 60.0
ACK_WAIT_SECONDS: Final = 2.5
MAX_ACK_PENDING: Final = 20_000
UNLIMITED: Final = -1


def bucket_stream(bucket: str) -> str:
    """The stream behind a KV bucket."""
    return f"KV_{bucket}"


def bucket_subject(bucket: str, key: str = ">") -> str:
    """The subject behind a key; without one, that of all keys."""
    return f"$KV.{bucket}.{key}"


def _bucket(bucket: str, replicas: int, marker_ttl: float | None = None) -> StreamConfig:
    return StreamConfig(
        name=bucket_stream(bucket),
        subjects=[bucket_subject(bucket)],
        storage=StorageType.FILE,
        num_replicas=replicas,
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=marker_ttl,
    )


def declared_streams(replicas: int = 1, results_max_bytes: int | None = None) -> tuple[StreamConfig, ...]:
    """Every stream and bucket of the product.

    ``results_max_bytes`` bounds the results that wait for storage; None leaves it to the operator.
    """
    checks = StreamConfig(
        name=CHECKS_STREAM,
        subjects=[CHECKS_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
        # At most one check per monitor and region is waiting or running: a second is refused, not piled up.
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        max_age=CHECKS_MAX_AGE_SECONDS,
        allow_msg_ttl=True,
        allow_direct=True,
    )
    results = StreamConfig(
        name=RESULTS_STREAM,
        subjects=[RESULTS_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
        # A full stream refuses the next result, which its worker then sees; it never drops an old one silently.
        discard=DiscardPolicy.NEW,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        max_bytes=results_max_bytes,
    )
    return (
        checks,
        results,
        _tasks(replicas),
        _dead_letters(replicas),
        _pings(replicas),
        _bucket(TASKS_BUCKET, replicas),
        _bucket(SCHEDULES_BUCKET, replicas),
        _bucket(LEADER_BUCKET, replicas, marker_ttl=LEADER_MARKER_SECONDS),
        _bucket(PROGRESS_BUCKET, replicas),
        _bucket(LOCKS_BUCKET, replicas, marker_ttl=LOCK_MARKER_SECONDS),
    )


def _tasks(replicas: int) -> StreamConfig:
    return StreamConfig(
        name=TASKS_STREAM,
        subjects=[TASKS_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
        discard=DiscardPolicy.NEW,
        # Whoever sends a task again, because he doesn't know whether it arrived, may do so within the hour.
        duplicate_window=TASKS_DUPLICATE_WINDOW_SECONDS,
    )


def _dead_letters(replicas: int) -> StreamConfig:
    return StreamConfig(
        name=DEAD_LETTERS_STREAM,
        subjects=[DEAD_LETTERS_SUBJECTS],
        storage=StorageType.FILE,
        num_replicas=replicas,
        # A letter has a subject of its own: written again it replaces itself. Nothing else ever pushes one out.
        max_msgs_per_subject=1,
        discard=DiscardPolicy.OLD,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        allow_direct=True,
    )


def _pings(replicas: int) -> StreamConfig:
    """Pings that were received while PostgreSQL was away."""
    return StreamConfig(
        name=PINGS_STREAM,
        subjects=[PINGS_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
        discard=DiscardPolicy.NEW,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
    )


Consumer = tuple[str, ConsumerConfig]
"""A stream, and the settings of a durable consumer on it."""


def declared_consumers(regions: Iterable[str]) -> tuple[Consumer, ...]:
    """Every durable consumer of an installation that checks in these regions."""
    workers = (worker(region) for region in sorted(set(regions)))
    return (*workers, recorder(), task_runners(), letter_alarm(), ping_keepers())


def worker(region: str) -> Consumer:
    """All workers of a region share it."""
    return CHECKS_STREAM, _durable(worker_consumer(region), region_filter(region))


def recorder() -> Consumer:
    """All recorders share it."""
    return RESULTS_STREAM, _durable(RECORDER_CONSUMER, RESULTS_SUBJECTS)


def task_runners() -> Consumer:
    """Everybody who runs tasks shares it."""
    # A task that waits for its next attempt counts as pending: a limit would let retries hold up first attempts.
    return TASKS_STREAM, _durable(TASKS_CONSUMER, TASKS_SUBJECTS, max_pending=UNLIMITED)


def letter_alarm() -> Consumer:
    """Those who raise the alarm share it."""
    return DEAD_LETTERS_STREAM, _durable(DEAD_LETTERS_CONSUMER, DEAD_LETTERS_SUBJECTS)


def ping_keepers() -> Consumer:
    """Everybody who stores pings shares it."""
    return PINGS_STREAM, _durable(PINGS_CONSUMER, PINGS_SUBJECTS)


def _durable(name: str, subjects: str, max_pending: int = MAX_ACK_PENDING) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name,
        filter_subject=subjects,
        ack_policy=AckPolicy.EXPLICIT,
        # Short, so that a killed worker's check runs again before the next slot of a 5 s monitor. A living
        # holder keeps its messages with "in progress" (see pull.py).
        ack_wait=ACK_WAIT_SECONDS,
        # A message that is given up would block its subject for ever: giving up is the reader's decision.
        max_deliver=-1,
        max_ack_pending=max_pending,
    )
