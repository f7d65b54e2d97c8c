"""Streams, buckets and consumers as data, and the one way to bring a server into line with them.

A server keeps what it has when someone asks for other settings, and says nothing: so we compare after declaring,
change what may be changed, and stop with one clear line at what may not.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from shared.contracts.names import (
    CHECKS_STREAM,
    CHECKS_SUBJECTS,
    LEADER_BUCKET,
    PROGRESS_BUCKET,
    RECORDER_CONSUMER,
    RESULTS_STREAM,
    RESULTS_SUBJECTS,
    SCHEDULES_BUCKET,
    region_filter,
    worker_consumer,
)
from shared.messaging.errors import StreamMismatchError

DUPLICATE_WINDOW_SECONDS: Final = 120.0
CHECKS_MAX_AGE_SECONDS: Final = 2 * 86_400.0
LEADER_MARKER_SECONDS: Final = 60.0
ACK_WAIT_SECONDS: Final = 2.5
MAX_ACK_PENDING: Final = 20_000

_NAME_TAKEN: Final = 10058

_log = structlog.get_logger(__name__)


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
        _bucket(SCHEDULES_BUCKET, replicas),
        _bucket(LEADER_BUCKET, replicas, marker_ttl=LEADER_MARKER_SECONDS),
        _bucket(PROGRESS_BUCKET, replicas),
    )


# What must be as declared; everything else (placement, compression, description) is the operator's business.
_STREAM_SETTINGS: Final = (
    "subjects",
    "retention",
    "storage",
    "num_replicas",
    "max_msgs_per_subject",
    "discard",
    "discard_new_per_subject",
    "duplicate_window",
    "max_age",
    "max_msgs",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_direct",
    "subject_delete_marker_ttl",
)
_BOUNDED_SETTINGS: Final = (*_STREAM_SETTINGS, "max_bytes")
_CONSUMER_SETTINGS: Final = (
    "filter_subject",
    "ack_policy",
    "ack_wait",
    "max_deliver",
    "max_ack_pending",
    "deliver_policy",
    "deliver_subject",
)
# The server answers with its own word for "not set".
_UNSET: Final = {"max_age": 0.0, "max_msgs": -1, "max_bytes": -1, "retention": "limits"}


async def ensure_streams(js: JetStreamContext, replicas: int = 1, results_max_bytes: int | None = None) -> None:
    """Create or correct every stream and bucket. Idempotent, and safe when several processes do it at once.

    Raises ``StreamMismatchError`` when the server refuses, ``nats.errors.Error`` when it does not answer.
    """
    for wanted in declared_streams(replicas, results_max_bytes):
        await ensure_stream(js, wanted)


async def ensure_stream(js: JetStreamContext, wanted: StreamConfig) -> None:
    """Bring one stream into line; raises as ``ensure_streams``."""
    name = str(wanted.name)
    try:
        found = await _find_or_create(js, wanted)
    except APIError as error:
        raise StreamMismatchError(
            f"stream {name}", f"cannot be created ({error.description})", "free its name and subjects"
        ) from error
    settings = _BOUNDED_SETTINGS if wanted.max_bytes is not None else _STREAM_SETTINGS
    differences = _differences(found, wanted, settings)
    if not differences:
        return
    try:
        await js.update_stream(found.evolve(**{setting: getattr(wanted, setting) for setting in differences}))
    except APIError as error:
        raise _mismatch("stream", name, differences, f"{error.description}", "empty and delete it") from error
    _log.warning("stream settings corrected", stream=name, changed=_readable(differences))


async def _find_or_create(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig:
    name = str(wanted.name)
    try:
        return (await js.stream_info(name)).config
    except NotFoundError:
        pass
    try:
        created = (await js.add_stream(wanted)).config
    except APIError as error:
        if error.err_code != _NAME_TAKEN:
            raise
        return (await js.stream_info(name)).config  # another process was faster, with other settings
    _log.info("stream created", stream=name)
    return created


async def ensure_consumer(js: JetStreamContext, region: str) -> None:
    """Create or correct the durable consumer that all workers of ``region`` share; raises as ``ensure_streams``."""
    await _ensure_consumer(js, CHECKS_STREAM, _durable(worker_consumer(region), region_filter(region)))


async def ensure_recorder(js: JetStreamContext) -> None:
    """Create or correct the durable consumer that all recorders share; raises as ``ensure_streams``."""
    await _ensure_consumer(js, RESULTS_STREAM, _durable(RECORDER_CONSUMER, RESULTS_SUBJECTS))


def _durable(name: str, subjects: str) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name,
        filter_subject=subjects,
        ack_policy=AckPolicy.EXPLICIT,
        # Short, so that a killed worker's check runs again before the next slot of a 5 s monitor. A living
        # holder keeps its messages with "in progress" (see pull.py).
        ack_wait=ACK_WAIT_SECONDS,
        # A message that is given up would block its subject for ever: giving up is the reader's decision.
        max_deliver=-1,
        max_ack_pending=MAX_ACK_PENDING,
    )


async def _ensure_consumer(js: JetStreamContext, stream: str, wanted: ConsumerConfig) -> None:
    name = str(wanted.durable_name)
    differences: dict[str, tuple[Any, Any]] = {}
    try:
        found = (await js.consumer_info(stream, name)).config
        differences = _differences(found, wanted, _CONSUMER_SETTINGS)
        if not differences:
            return
    except NotFoundError:
        pass
    try:
        await js.add_consumer(stream, wanted)  # creates, or updates what exists
    except NotFoundError as error:
        raise StreamMismatchError(
            f"consumer {name}", f"stream {stream} is missing", "declare the streams first"
        ) from error
    except APIError as error:
        raise _mismatch("consumer", name, differences, f"{error.description}", "delete it") from error
    if differences:
        _log.warning("consumer settings corrected", consumer=name, changed=_readable(differences))
    else:
        _log.info("consumer created", consumer=name, stream=stream)


def _differences(found: object, wanted: object, settings: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Setting -> (found, wanted), for those that differ in meaning and not only in notation."""
    pairs = {s: (_plain(s, getattr(found, s)), _plain(s, getattr(wanted, s))) for s in settings}
    return {setting: pair for setting, pair in pairs.items() if pair[0] != pair[1]}


def _plain(setting: str, value: Any) -> Any:
    if value is None:
        return _UNSET.get(setting, False)
    return str(value.value) if hasattr(value, "value") else value


def _readable(differences: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{setting} {found} -> {wanted}" for setting, (found, wanted) in differences.items())


def _mismatch(
    kind: str, name: str, differences: dict[str, tuple[Any, Any]], reason: str, mend: str
) -> StreamMismatchError:
    details = "; ".join(
        f"{setting} is {found}, wanted {wanted}" for setting, (found, wanted) in differences.items()
    )
    return StreamMismatchError(
        f"{kind} {name}",
        f"{details or 'cannot be created'} ({reason})",
        f"{mend}, it is made anew at the next start",
    )
