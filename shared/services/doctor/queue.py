"""Checks of NATS: the server, and the streams and consumers as the code declares them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from nats.errors import Error as NatsError
from nats.js.api import StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from shared.domain.clock import Clock, to_milliseconds
from shared.messaging.beat import beats_stream
from shared.messaging.connect import NatsConnection, describe
from shared.messaging.declarations import declared_streams
from shared.messaging.stream_state import stream_state
from shared.messaging.streams import Differences, inspect_stream
from shared.services.doctor.clocks import compared
from shared.services.doctor.findings import Checks, Finding, Severity

# Message schedules, on which the beat rests, and the per-message times to live.
MIN_SERVER_VERSION: Final = (2, 14)
FULL_AT: Final = 0.8

_SYNC_NOTE = Finding(
    "NATS does not tell its clients how often it writes to disk",
    "set sync_interval: always in its jetstream block, or run three servers in separate zones",
    Severity.NOTE,
)


async def ready(connection: NatsConnection) -> list[Finding]:
    """Whether the server can do our work at all; nothing else can be asked before."""
    version = connection.client.connected_server_version
    if (version.major, version.minor) < MIN_SERVER_VERSION:
        wanted = ".".join(map(str, MIN_SERVER_VERSION))
        return [Finding(f"nats-server {version} is too old", f"run nats-server {wanted} or newer")]
    try:
        await connection.js.account_info()
    except NatsError as error:
        return [
            Finding(
                f"JetStream does not answer: {describe(error)}",
                "enable jetstream in the server's configuration, and for the account that TOCSIN_NATS_URL names",
            )
        ]
    return []


def queue_checks(connection: NatsConnection, replicas: int, clock: Clock) -> Checks:
    """What can be asked once the server is ``ready``."""
    wanted = (*declared_streams(replicas), beats_stream(replicas))
    return {
        "streams and buckets": partial(streams, connection, wanted),
        "replicas": partial(replicas_in_step, connection, wanted),
        "room in NATS": partial(room, connection, wanted),
        "clock against NATS": partial(clock_skew, connection, wanted, clock),
    }


async def streams(connection: NatsConnection, wanted: Collection[StreamConfig]) -> list[Finding]:
    found = []
    for stream in wanted:
        differences = await inspect_stream(connection.js, stream)
        if differences is None:
            found.append(
                Finding(f"stream {stream.name} is missing", "start any process of Tocsin: it is made anew")
            )
        elif differences:
            found.append(
                Finding(
                    f"stream {stream.name}: {as_words(differences)}",
                    "restart a process of Tocsin: it corrects what the server lets it, and says what it does not",
                )
            )
    return found


def as_words(differences: Differences) -> str:
    return "; ".join(f"{setting} is {found}, not {wanted}" for setting, (found, wanted) in differences.items())


async def replicas_in_step(connection: NatsConnection, wanted: Collection[StreamConfig]) -> list[Finding]:
    """Only a cluster knows of replicas."""
    found = []
    for info in await _existing(connection, wanted):
        for peer in (info.cluster.replicas if info.cluster else None) or ():
            if peer.offline or not peer.current:
                state = "is away" if peer.offline else "is behind"
                found.append(
                    Finding(
                        f"stream {info.config.name}: its replica on {peer.name} {state}",
                        f"start nats-server {peer.name}, or look at its log: one more loss stops the stream",
                        Severity.WARNING,
                    )
                )
    return found


async def room(connection: NatsConnection, wanted: Collection[StreamConfig]) -> list[Finding]:
    """How near a limit is, of the account or of one stream."""
    account = await connection.js.account_info()
    uses = [("the account's storage", account.storage, account.limits.max_storage or 0)]
    uses += [
        (f"stream {info.config.name}", info.state.bytes, info.config.max_bytes or 0)
        for info in await _existing(connection, wanted)
    ]
    return [
        Finding(
            f"{what} is {used / most:.0%} full",
            "raise its limit, or see why it is not emptied: a full one refuses checks and results",
            Severity.WARNING,
        )
        for what, used, most in uses
        if used > FULL_AT * most > 0
    ]


async def clock_skew(connection: NatsConnection, wanted: Collection[StreamConfig], clock: Clock) -> list[Finding]:
    existing = await _existing(connection, wanted)
    if not existing:
        return []
    before = clock.now_ms()
    told = (await stream_state(connection, str(existing[0].config.name))).ts
    return compared("NATS", before, to_milliseconds(told), clock.now_ms()) if told else []


async def durability() -> list[Finding]:
    """For a server that others run."""
    return [_SYNC_NOTE]


async def _existing(connection: NatsConnection, wanted: Collection[StreamConfig]) -> list[StreamInfo]:
    """That one is missing is a finding of ``streams``."""
    found = []
    for stream in wanted:
        try:
            found.append(await connection.js.stream_info(str(stream.name)))
        except NotFoundError:
            continue
    return found
