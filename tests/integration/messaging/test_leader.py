"""At most one process holds the lease, and somebody soon does again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from nats.aio.msg import Msg
from nats.js.api import PubAck

from shared.contracts.names import LEADER_BUCKET, LEADER_KEY
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.declarations import bucket_stream, bucket_subject
from shared.messaging.leader import LeaderElection
from shared.messaging.streams import ensure_streams
from shared.testing.nats import FlakyProxy, NatsServer
from tests.integration.messaging.conftest import until

SUBJECT = bucket_subject(LEADER_BUCKET, LEADER_KEY)
# Seconds: a lease that nobody lives to see the end of, and what is not waited for takes less than a beat of it.
LONG, AT_ONCE = 60, 15.0


class Candidate:
    """One process's share of the election, over a connection of its own."""

    def __init__(self, name: str, connection: NatsConnection, ttl: int = 5) -> None:
        self.connection = connection
        self.election = LeaderElection(
            connection, name, ensure=lambda: ensure_streams(connection.js), ttl=ttl, beat=0.35 * ttl
        )
        self.task = asyncio.create_task(self.election.run())

    @property
    def holds(self) -> bool:
        return self.election.holds

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def candidate(name: str, url: str, *, ttl: int = 5) -> AsyncIterator[Candidate]:
    connection = await connect([url], name=name, buffer_writes=False)
    await ensure_streams(connection.js)
    running = Candidate(name, connection, ttl)
    yield running
    await running.stop()
    await connection.close()


class Watcher:
    """Looks every two milliseconds how many candidates hold the lease: one clock for all of them."""

    def __init__(self, *candidates: Candidate) -> None:
        self.candidates = candidates
        self.most = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()

    async def _look(self) -> None:
        while True:
            self.most = max(self.most, sum(one.holds for one in self.candidates))
            await asyncio.sleep(0.002)


async def test_one_of_five_leads_and_a_release_hands_over_at_once(server: NatsServer) -> None:
    loop = asyncio.get_running_loop()
    async with (
        candidate("1", server.url, ttl=LONG) as one,
        candidate("2", server.url, ttl=LONG) as two,
        candidate("3", server.url, ttl=LONG) as three,
        candidate("4", server.url, ttl=LONG) as four,
        candidate("5", server.url, ttl=LONG) as five,
    ):
        waiting = {one, two, three, four, five}
        epochs: list[int] = []
        async with Watcher(*waiting) as watcher:
            while waiting:
                started = loop.time()
                await until(lambda: any(each.holds for each in waiting), what="a leader")  # awaited here
                if epochs:
                    assert loop.time() - started < AT_ONCE
                leader = next(each for each in waiting if each.holds)
                await until(lambda: all(each.election.established.is_set() for each in waiting))  # as above
                epochs.append(leader.election.epoch)
                await leader.stop()
                waiting.discard(leader)
            assert watcher.most == 1
        assert epochs == sorted(set(epochs))


async def test_a_leader_that_is_cut_off_stops_before_the_next_one_starts(
    server: NatsServer, proxy: FlakyProxy
) -> None:
    async with candidate("old", proxy.url) as old:
        await until(lambda: old.holds)
        async with candidate("new", server.url) as new, Watcher(old, new) as watcher:
            cut_at = asyncio.get_running_loop().time()
            proxy.black_hole()
            await until(lambda: new.holds, what="the take-over")
            print(f"take-over after {asyncio.get_running_loop().time() - cut_at:.2f} s")
            assert not old.holds
            assert watcher.most == 1
            proxy.heal()
            await until(lambda: old.connection.is_connected and old.election.established.is_set())
            assert new.holds
            assert not old.holds
            assert watcher.most == 1


async def test_a_server_restart_leaves_the_leader_in_place(server: NatsServer) -> None:
    async with candidate("1", server.url, ttl=LONG) as one:
        await until(lambda: one.holds)
        async with candidate("2", server.url, ttl=LONG) as two, Watcher(one, two) as watcher:
            epoch = one.election.epoch
            await server.restart(down=0.5)
            await until(lambda: one.connection.is_connected and two.connection.is_connected)
            await until(lambda: one.holds)
            assert one.election.epoch == epoch
            assert watcher.most == 1


async def test_a_wiped_server_gets_its_bucket_back_and_a_leader(server: NatsServer) -> None:
    async with candidate("1", server.url, ttl=2) as one:
        await until(lambda: one.holds)
        await server.kill()
        server.wipe()
        await server.start()
        await until(lambda: one.election.changes == 3 and one.holds, what="leading again")


async def test_a_deleted_key_makes_the_leader_stop_before_the_next_one_starts(
    server: NatsServer, connection: NatsConnection
) -> None:
    async with (
        candidate("1", server.url, ttl=LONG) as one,
        candidate("2", server.url, ttl=LONG) as two,
        Watcher(one, two) as watcher,
    ):
        await until(lambda: one.holds or two.holds)
        leader = one if one.holds else two
        epoch = leader.election.epoch
        await (await connection.js.key_value(LEADER_BUCKET)).delete(LEADER_KEY)
        await until(lambda: max(one.election.epoch, two.election.epoch) > epoch, within=AT_ONCE, what="a new epoch")
        await until(lambda: one.holds or two.holds, within=AT_ONCE)
        await until(lambda: one.election.changes + two.election.changes >= 3, within=AT_ONCE, what="the step down")
        assert watcher.most == 1


async def test_every_revision_of_a_lease_carries_its_time_to_live(
    server: NatsServer, connection: NatsConnection
) -> None:
    revisions: list[dict[str, str]] = []

    async def note(message: Msg) -> None:
        revisions.append(message.headers or {})

    await connection.client.subscribe(SUBJECT, cb=note)
    async with candidate("1", server.url) as one:
        await until(lambda: one.holds)
        await until(lambda: len(revisions) >= 2, what="a renewal")
    await until(lambda: revisions[-1].get("KV-Operation") == "DEL", what="the release")
    assert {headers.get("Nats-TTL") for headers in revisions[:-1]} == {"5"}
    assert all("Nats-Expected-Last-Subject-Sequence" in headers for headers in revisions)
    last = await connection.js.get_last_msg(bucket_stream(LEADER_BUCKET), SUBJECT)
    assert (last.headers or {}).get("KV-Operation") == "DEL"


async def test_stopping_leaves_no_task_behind(server: NatsServer, connection: NatsConnection) -> None:
    before = asyncio.all_tasks()
    one = Candidate("1", connection)
    await until(lambda: one.holds)
    await one.stop()
    await until(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")


async def test_an_election_ends_although_the_client_swallows_its_cancellation(
    connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, has_published = connection.js.publish, asyncio.Event()

    async def publish_and_swallow(*arguments: Any, **settings: Any) -> PubAck:
        receipt = await publish(*arguments, **settings)
        if not has_published.is_set():
            has_published.set()
            with contextlib.suppress(asyncio.CancelledError):  # as wait_for does when the answer is there already
                await asyncio.Event().wait()
        return receipt

    monkeypatch.setattr(connection.js, "publish", publish_and_swallow)
    one = Candidate("1", connection)
    await has_published.wait()
    async with asyncio.timeout(AT_ONCE):
        await one.stop()


class Process:
    """A ``leader_process`` and what it printed."""

    def __init__(self, name: str, url: str, directory: Path, ttl: int) -> None:
        self.output = directory / f"{name}.log"
        with self.output.open("wb") as log:
            module = [sys.executable, "-m", "tests.integration.messaging.leader_process"]
            self.process = subprocess.Popen([*module, url, name, str(ttl)], stdout=log)

    def times(self, what: str) -> list[float]:
        return [float(moment) for moment in re.findall(rf"^{what} (\S+)\n", self.output.read_text(), re.MULTILINE)]

    async def until(self, what: str, *, within: float = 60.0) -> None:
        await until(lambda: bool(self.times(what)), within=within, what=what)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    async def end(self, number: int) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 30)


@asynccontextmanager
async def leader_and_standby(url: str, directory: Path, *, ttl: int) -> AsyncIterator[tuple[Process, Process]]:
    processes = [Process("leader", url, directory, ttl)]
    try:
        await processes[0].until("dispatch")
        processes.append(Process("standby", url, directory, ttl))
        yield processes[0], processes[1]
    finally:
        for one in processes:
            if one.process.poll() is None:
                await one.end(signal.SIGKILL)


async def started(standby: Process) -> None:
    """The standby has begun to compete: its streams are there and the leader is another."""
    await standby.until("competes")


async def test_a_terminated_leader_hands_over_at_once(server: NatsServer, tmp_path: Path) -> None:
    async with leader_and_standby(server.url, tmp_path, ttl=LONG) as (leader, standby):
        await started(standby)
        await asyncio.sleep(0.5)
        assert await leader.end(signal.SIGTERM) == 0
        await standby.until("dispatch")
        gap = standby.times("dispatch")[0] - leader.times("dispatch")[-1]
        print(f"gap {gap:.3f} s")
        assert 0 < gap < AT_ONCE


async def test_a_killed_leader_is_replaced_when_its_lease_has_ended(server: NatsServer, tmp_path: Path) -> None:
    async with leader_and_standby(server.url, tmp_path, ttl=8) as (leader, standby):
        await started(standby)
        await leader.end(signal.SIGKILL)
        await standby.until("dispatch")
        gap = standby.times("dispatch")[0] - leader.times("dispatch")[-1]
        print(f"gap {gap:.3f} s")
        assert 3 < gap < 20, "it renews at the latest 2.8 seconds after the last time, for eight more"


async def test_a_leader_that_dies_together_with_the_server_is_replaced(server: NatsServer, tmp_path: Path) -> None:
    async with leader_and_standby(server.url, tmp_path, ttl=2) as (leader, standby):
        await started(standby)
        await leader.end(signal.SIGKILL)
        await server.kill()
        await server.start()
        await standby.until("dispatch")


async def test_a_frozen_leader_dispatches_nothing_when_it_wakes(server: NatsServer, tmp_path: Path) -> None:
    async with leader_and_standby(server.url, tmp_path, ttl=2) as (leader, standby):
        await started(standby)
        leader.signal(signal.SIGSTOP)
        await standby.until("dispatch")
        leader.signal(signal.SIGCONT)
        await leader.until("follows")
        assert leader.times("dispatch")[-1] < standby.times("dispatch")[0]
