"""The one way to bring a server into line with what is declared, and to say where it is not.

A server keeps what it has when someone asks for other settings, and says nothing: so we compare after declaring,
change what may be changed, and stop with one clear line at what may not.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import APIError, NotFoundError

from shared.messaging import declarations
from shared.messaging.declarations import declared_streams
from shared.messaging.errors import StreamMismatchError

AFTER_DELETION_SECONDS: Final = 0.5
_NAME_TAKEN: Final = 10058

_log = structlog.get_logger(__name__)


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


Differences = dict[str, tuple[Any, Any]]
"""Setting -> (found, wanted)."""


async def ensure_streams(js: JetStreamContext, replicas: int = 1, results_max_bytes: int | None = None) -> None:
    """Create or correct every stream and bucket. Idempotent, and safe when several processes do it at once.

    Raises ``StreamMismatchError`` when the server refuses, ``nats.errors.Error`` when it does not answer.
    """
    declared = declared_streams(replicas, results_max_bytes)
    found = [await _find(js, wanted) for wanted in declared]
    if any(found) and not all(found):
        # Somebody deleted one, perhaps a moment ago: the server may still be removing the files of the old one,
        # and was seen to remove those of a new one with them. Such a stream exists and stores nothing.
        await asyncio.sleep(AFTER_DELETION_SECONDS)
    for wanted, known in zip(declared, found, strict=True):
        await _bring_into_line(js, wanted, known)


async def ensure_stream(js: JetStreamContext, wanted: StreamConfig) -> None:
    """Bring one stream into line; raises as ``ensure_streams``."""
    await _bring_into_line(js, wanted, await _find(js, wanted))


async def _bring_into_line(js: JetStreamContext, wanted: StreamConfig, known: StreamConfig | None) -> None:
    name = str(wanted.name)
    try:
        found = known or await _create(js, wanted)
    except APIError as error:
        raise StreamMismatchError(
            f"stream {name}", f"cannot be created ({error.description})", "free its name and subjects"
        ) from error
    differences = _stream_differences(found, wanted)
    if not differences:
        return
    try:
        await js.update_stream(found.evolve(**{setting: getattr(wanted, setting) for setting in differences}))
    except APIError as error:
        raise _mismatch("stream", name, differences, f"{error.description}", "empty and delete it") from error
    _log.warning("stream settings corrected", stream=name, changed=_readable(differences))


async def inspect_stream(js: JetStreamContext, wanted: StreamConfig) -> Differences | None:
    """Where the server's stream differs from its declaration; None when it is missing. Changes nothing."""
    found = await _find(js, wanted)
    return None if found is None else _stream_differences(found, wanted)


async def _find(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig | None:
    try:
        return (await js.stream_info(str(wanted.name))).config
    except NotFoundError:
        return None


async def _create(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig:
    try:
        created = (await js.add_stream(wanted)).config
    except APIError as error:
        if error.err_code != _NAME_TAKEN:
            raise
        return (await js.stream_info(str(wanted.name))).config  # another process was faster, with other settings
    _log.info("stream created", stream=str(wanted.name))
    return created


async def ensure_consumer(js: JetStreamContext, region: str) -> None:
    """Create or correct the durable consumer that all workers of ``region`` share; raises as ``ensure_streams``."""
    await _ensure_consumer(js, *declarations.worker(region))


async def ensure_recorder(js: JetStreamContext) -> None:
    """Create or correct the durable consumer that all recorders share; raises as ``ensure_streams``."""
    await _ensure_consumer(js, *declarations.recorder())


async def ensure_ping_consumer(js: JetStreamContext) -> None:
    """Create or correct the durable consumer of everybody who stores pings; raises as ``ensure_streams``."""
    await _ensure_consumer(js, *declarations.ping_keepers())


async def ensure_task_consumer(js: JetStreamContext) -> None:
    """Create or correct the durable consumer of everybody who runs tasks; raises as ``ensure_streams``."""
    await _ensure_consumer(js, *declarations.task_runners())


async def ensure_dead_letter_consumer(js: JetStreamContext) -> None:
    """Create or correct the durable consumer of those who raise the alarm; raises as ``ensure_streams``."""
    await _ensure_consumer(js, *declarations.letter_alarm())


async def inspect_consumer(js: JetStreamContext, stream: str, wanted: ConsumerConfig) -> Differences | None:
    """As ``inspect_stream``, for a durable consumer."""
    try:
        found = (await js.consumer_info(stream, str(wanted.durable_name))).config
    except NotFoundError:
        return None
    return _differences(found, wanted, _CONSUMER_SETTINGS)


async def _ensure_consumer(js: JetStreamContext, stream: str, wanted: ConsumerConfig) -> None:
    name = str(wanted.durable_name)
    differences = await inspect_consumer(js, stream, wanted)
    if differences == {}:
        return
    try:
        await js.add_consumer(stream, wanted)  # creates, or updates what exists
    except NotFoundError as error:
        raise StreamMismatchError(
            f"consumer {name}", f"stream {stream} is missing", "declare the streams first"
        ) from error
    except APIError as error:
        raise _mismatch("consumer", name, differences or {}, f"{error.description}", "delete it") from error
    if differences:
        _log.warning("consumer settings corrected", consumer=name, changed=_readable(differences))
    else:
        _log.info("consumer created", consumer=name, stream=stream)


def _stream_differences(found: StreamConfig, wanted: StreamConfig) -> Differences:
    return _differences(found, wanted, _BOUNDED_SETTINGS if wanted.max_bytes is not None else _STREAM_SETTINGS)


def _differences(found: object, wanted: object, settings: tuple[str, ...]) -> Differences:
    """Only what differs in meaning and not in notation alone."""
    pairs = {s: (_plain(s, getattr(found, s)), _plain(s, getattr(wanted, s))) for s in settings}
    return {setting: pair for setting, pair in pairs.items() if pair[0] != pair[1]}


def _plain(setting: str, value: Any) -> Any:
    if value is None:
        return _UNSET.get(setting, False)
    return str(value.value) if hasattr(value, "value") else value


def _readable(differences: Differences) -> str:
    return ", ".join(f"{setting} {found} -> {wanted}" for setting, (found, wanted) in differences.items())


def _mismatch(kind: str, name: str, differences: Differences, reason: str, mend: str) -> StreamMismatchError:
    details = "; ".join(
        f"{setting} is {found}, wanted {wanted}" for setting, (found, wanted) in differences.items()
    )
    return StreamMismatchError(
        f"{kind} {name}",
        f"{details or 'cannot be created'} ({reason})",
        f"{mend}, it is made anew at the next start",
    )
