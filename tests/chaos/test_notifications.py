"""SIGKILL of the relay and of the notifier at every step: each transition is told, once or marked.

A step that died is followed by a fresh process, as a supervisor would start it. Incidents open and end all the
while, at two channels.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from shared.db.session import Database
from shared.testing.nats import NatsServer
from tests.chaos import alert_process
from tests.chaos.alert_process import STEPS, Orders
from tests.integration.alerting.conftest import Scene, eventually
from tests.integration.channels.sinks import HttpSink
from tests.integration.db.tenants import add_organisation

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.alert_process"])


class Part:
    """The relay or the notifier: killed at a step, then started anew."""

    def __init__(self, name: str, work: Callable[[Orders], None], orders: Orders) -> None:
        self.name, self._work, self._orders = name, work, orders
        self._process: ForkServerProcess | None = None
        self.deaths: Counter[str] = Counter()

    def start(self, step: str | None = None, *, after: bool = True, count: int = 1) -> None:
        orders = Orders(self._orders.database_url, self._orders.nats_url, step, after, count)
        self._process = _context.Process(target=self._work, args=(orders,), daemon=True)
        self._process.start()

    async def dies(self, seconds: float) -> bool:
        """Wait for the end; False when the step was not reached in time: then it is killed wherever it is."""
        assert self._process is not None
        began = time.monotonic()
        while self._process.is_alive() and time.monotonic() - began < seconds:  # noqa: ASYNC110 it is a process
            await asyncio.sleep(0.01)
        died = not self._process.is_alive()
        self.stop()
        return died

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


@pytest.mark.chaos
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, id="quick"),
        pytest.param(200, id="whole", marks=[pytest.mark.whole, pytest.mark.timeout(3000)]),
    ],
)
async def test_whatever_step_is_killed_each_transition_is_told_once_or_marked(
    rounds: int, database: Database, database_url: str, nats: NatsServer, record_property: Any
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scene = Scene(database, await add_organisation(database, "alice"))
    orders = Orders(database_url, nats.url)
    async with AsyncExitStack() as stack:
        sinks = [await stack.enter_async_context(HttpSink()) for _ in range(2)]
        for sink in sinks:
            await scene.add_channel(config={"url": sink.url})
        relay = Part("relay", alert_process.relay, orders)
        notifier = Part("notifier", alert_process.notifier, orders)
        for part in (relay, notifier):
            stack.callback(part.stop)
        opened = await _rounds(rounds, chance, scene, relay, notifier)
        await eventually(scene.has_settled, seconds=90)
        transitions = _judge(sinks, opened, await scene.deliveries())
        deaths = relay.deaths + notifier.deaths
    marked = [row for row in await scene.deliveries() if row.possibly_duplicated]
    told = (
        f"{sum(deaths.values())} kills at {len(deaths)} steps: {transitions} transitions at 2 channels, "
        f"none lost, {len(marked)} marked as possibly sent twice"
    )
    print(told)
    record_property("figure", f"Notifications, {told}.")


async def _rounds(rounds: int, chance: random.Random, scene: Scene, relay: Part, notifier: Part) -> list[str]:
    """Kill one of the two in each round; answers the incidents that were opened, each of which has ended."""
    steps = sorted(STEPS)
    opened: list[str] = []
    monitors = [await scene.add_monitor() for _ in range(4)]
    for number in range(rounds):
        step = steps[number % len(steps)] if rounds >= len(steps) else chance.choice(steps)
        victim, other = (relay, notifier) if step.startswith("relay") else (notifier, relay)
        victim.start(step, after=chance.random() < 0.5, count=chance.randint(1, 3))
        other.start()
        incidents = [await scene.open(monitor) for monitor in chance.sample(monitors, 3)]
        opened += [str(incident.id) for incident in incidents]
        await asyncio.sleep(chance.uniform(0, 0.3))
        for incident in incidents:
            await scene.resolve(incident)
        died = await victim.dies(seconds=10)
        victim.deaths[step if died else "at any moment"] += 1
        other.stop()
    relay.start()
    notifier.start()
    return opened


def _judge(sinks: list[HttpSink], opened: list[str], rows: list[Any]) -> int:
    marked = {(str(row.incident_id), row.event, str(row.channel_id)) for row in rows if row.possibly_duplicated}
    assert {row.state for row in rows} == {"delivered"}
    assert len(rows) == len(opened) * 2 * len(sinks)
    doubles: list[tuple[str, str]] = []
    for sink in sinks:
        heard: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for arrival in sink.arrivals:
            heard[arrival.json["data"]["incident"]["id"], arrival.json["type"]].append(arrival)
        for incident in opened:
            first = heard[incident, "incident.opened"]
            last = heard[incident, "incident.resolved"]
            assert first, f"the opening of {incident} was never told"
            assert last, f"the end of {incident} was never told"
            assert first[0].at <= last[0].at, f"the end of {incident} was told before its beginning"
        for key, arrivals in heard.items():
            assert len({arrival.headers["webhook-id"] for arrival in arrivals}) == 1, key
            doubles += [key] * (len(arrivals) > 1)
    for incident, event in doubles:
        assert any(each[:2] == (incident, event) for each in marked), f"{event} of {incident} came twice, unmarked"
    return len(opened) * 2
