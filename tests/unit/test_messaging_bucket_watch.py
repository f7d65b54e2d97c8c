"""When a load is complete and when a watch has to be begun anew, frame by frame."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from shared.domain.clock import SystemClock
from shared.messaging.bucket_watch import BucketWatch, WatchEndedError


class Frames:
    """A watch that is fed by hand."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes | None]] = []
        connection = cast("Any", None)  # nothing is sent here
        self.watch = BucketWatch(
            connection, "b", SystemClock(), lambda key, value, _: self.taken.append((key, value))
        )

    async def entry(self, key: str, sequence: int, *, behind: int, headers: dict[str, str] | None = None) -> None:
        """One value; ``sequence`` counts what the server sent, ``behind`` what it still has to send."""
        reply = f"$JS.ACK.KV_b.mirror.1.{100 + sequence}.{sequence}.1700000000000000000.{behind}"
        await self.watch._receive(Msg(cast("Any", None), f"$KV.b.{key}", reply, b"value", headers))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def status(self, headers: dict[str, str]) -> None:
        await self.watch._receive(Msg(cast("Any", None), "inbox", "", b"", headers))


async def test_a_load_is_not_over_before_everything_announced_has_come() -> None:
    frames = Frames()
    loading = asyncio.create_task(frames.watch._until_complete(2))
    await frames.entry("a", 1, behind=0)  # the server counted what is pending before it stored the second key
    assert not loading.done()
    await frames.entry("b", 2, behind=0)
    await loading


async def test_a_value_that_changes_during_the_load_does_not_stand_for_another_key() -> None:
    frames = Frames()
    loading = asyncio.create_task(frames.watch._until_complete(2))
    await frames.entry("a", 1, behind=2)
    await frames.entry("a", 2, behind=1)
    assert not loading.done()
    await frames.entry("b", 3, behind=0)
    await loading


async def test_a_gap_ends_the_watch() -> None:
    frames = Frames()
    await frames.entry("a", 1, behind=0)
    frames.watch.check()
    await frames.entry("c", 3, behind=0)
    with pytest.raises(WatchEndedError, match="lost"):
        frames.watch.check()


@pytest.mark.parametrize(
    "headers",
    [{"Status": "409", "Description": "Consumer Deleted"}, {"Status": "100", "Nats-Last-Consumer": "5"}],
    ids=["consumer deleted", "heartbeat ahead of us"],
)
async def test_what_the_server_says_against_it_ends_the_watch(headers: dict[str, str]) -> None:
    frames = Frames()
    await frames.entry("a", 1, behind=0)
    await frames.status({"Status": "100", "Nats-Last-Consumer": "1"})
    frames.watch.check()
    await frames.status(headers)
    with pytest.raises(WatchEndedError):
        frames.watch.check()


@pytest.mark.parametrize(
    "headers", [{"KV-Operation": "DEL"}, {"KV-Operation": "PURGE"}, {"Nats-Marker-Reason": "MaxAge"}]
)
async def test_every_kind_of_disappearance_is_a_missing_value(headers: dict[str, str]) -> None:
    frames = Frames()
    await frames.entry("a.b", 1, behind=0, headers=headers)
    assert frames.taken == [("a.b", None)]
