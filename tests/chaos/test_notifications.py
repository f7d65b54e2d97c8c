"""SIGKILL of the recorder, the relay and the notifier at every step: each transition is told, once or marked.

Results come in through the queue all the while, incidents open and end, and two channels are told. A process that
died is followed by a fresh one, as a supervisor would start it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain, cycle, islice, zip_longest
from typing import Any
from uuid import UUID

import pytest

from shared.contracts.names import RESULTS_STREAM
from shared.db.session import Database
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.testing.nats import NatsServer
from shared.testing.tocsin import eventually
from tests.chaos import alert_process
from tests.chaos.alert_process import Orders, Part
from tests.chaos.outages import Outages, connected
from tests.chaos.steps import STEPS
from tests.integration.alerting.conftest import Scene
from tests.integration.channels.sinks import HttpSink
from tests.integration.db.tenants import add_organisation

WITHIN_SECONDS = 20.0
MONITORS = 4
NOT_REACHED = "elsewhere, the step was not reached"
IN_PASSING = "elsewhere, to make room for the next"

Heard = tuple[UUID, str]
"""An incident and a transition."""


@pytest.mark.chaos
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(9, id="quick"),
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
    async with AsyncExitStack() as stack:
        sinks: dict[UUID, HttpSink] = {}
        for _ in range(2):
            sink = await stack.enter_async_context(HttpSink())
            sinks[await scene.add_channel(config={"url": sink.url})] = sink
        connection = await stack.enter_async_context(connected(nats))
        outages = Outages(database, await stack.enter_async_context(Publisher(connection)), chance)
        parts = await stack.enter_async_context(_parts(Orders(database_url, nats.url)))
        await _rounds(rounds, chance, scene, parts, outages)
        await eventually("all is told", lambda: _is_over(scene, outages, connection), within=90)
        transitions, doubles = await _judge(sinks, outages, await scene.deliveries())
    deaths = sum((part.deaths for part in parts.values()), Counter())
    if rounds >= 2 * len(STEPS):
        assert deaths.keys() >= STEPS.keys(), "a step was never reached"
    marked = sum(row.possibly_duplicated for row in await scene.deliveries())
    told = (
        f"{_told(deaths)}: {outages.results} results, {transitions} transitions at {len(sinks)} channels, "
        f"none lost, {doubles} told more than once, {marked} marked as possibly sent twice"
    )
    print(told, *(f"{kills:4} {step}" for step, kills in sorted(deaths.items())), sep="\n")
    record_property("figure", f"Notifications, {told}.")


@asynccontextmanager
async def _parts(orders: Orders) -> AsyncIterator[dict[str, Part]]:
    works = (alert_process.recorder, alert_process.relay, alert_process.notifier)
    parts = {work.__name__: Part(work.__name__, work, orders) for work in works}
    try:
        yield parts
    finally:
        for part in parts.values():
            part.stop()


async def _rounds(
    rounds: int, chance: random.Random, scene: Scene, parts: Mapping[str, Part], outages: Outages
) -> None:
    """Kill one of the three in each round, while monitors fail and recover; at the end all of them are well."""
    monitors = [await scene.add_monitor(flap_window_seconds=0) for _ in range(MONITORS)]
    async with asyncio.TaskGroup() as group:
        for monitor in monitors:
            group.create_task(outages.go_on(monitor))
        for step, after in islice(_plan(chance), rounds):
            victim = parts[_part_of(step)]
            if victim.is_alive:
                victim.stop()
                victim.deaths[IN_PASSING] += 1
            victim.start(step, after=after, count=chance.randint(1, 3))
            _start_the_dead(parts)
            died = await victim.dies(WITHIN_SECONDS)
            victim.deaths[step if died else NOT_REACHED] += 1
        _start_the_dead(parts)
        outages.end()


def _start_the_dead(parts: Mapping[str, Part]) -> None:
    for part in parts.values():
        if not part.is_alive:
            part.start()


def _plan(chance: random.Random) -> Iterator[tuple[str, bool]]:
    """Each step, before it and after it, over and over; the three take turns as long as they can."""
    ways = [(step, after) for step in STEPS for after in (False, True)]
    chance.shuffle(ways)
    by_part: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for way in ways:
        by_part[_part_of(way[0])].append(way)
    return cycle(way for way in chain(*zip_longest(*by_part.values())) if way)


def _part_of(step: str) -> str:
    return step.partition(":")[0]


async def _is_over(scene: Scene, outages: Outages, connection: NatsConnection) -> bool:
    """Whether nothing is on its way any more: no result, no alert that waits, no delivery."""
    waiting = (await connection.js.stream_info(RESULTS_STREAM)).state.messages
    return not waiting and not await outages.is_waiting() and await scene.has_settled()


async def _judge(sinks: Mapping[UUID, HttpSink], outages: Outages, rows: list[Any]) -> tuple[int, int]:
    """All that was demanded has become a transition, and each transition was told at each channel.

    Answers how many there were, and how many came more than once.
    """
    assert await outages.stored() == outages.results
    transitions = await outages.transitions()
    demanded = {(each, word): n for each, n in outages.of.items() for word in ("opened", "resolved")}
    assert Counter((row.monitor_id, row.transition) for row in transitions) == demanded
    expected = Counter((row.incident_id, row.transition) for row in transitions)
    assert set(expected.values()) == {1}, "an incident was opened or ended twice"
    assert {row.state for row in rows} == {"delivered"}
    assert len(rows) == len(transitions) * len(sinks)
    doubles = 0
    for channel, sink in sinks.items():
        sent = [row for row in rows if row.channel_id == channel and row.possibly_duplicated]
        marked = {(row.incident_id, row.event.removeprefix("incident.")) for row in sent}
        heard: dict[Heard, list[Any]] = defaultdict(list)
        for arrival in sink.arrivals:
            body = arrival.json
            heard[UUID(body["data"]["incident"]["id"]), body["type"].removeprefix("incident.")].append(arrival)
        assert expected.keys() - heard.keys() == set(), "never told"
        assert heard.keys() - expected.keys() == set(), "told, and never happened"
        _judge_channel(heard, marked)
        doubles += sum(len(arrivals) > 1 for arrivals in heard.values())
    return len(transitions), doubles


def _judge_channel(heard: Mapping[Heard, list[Any]], marked: set[Heard]) -> None:
    for (incident, transition), arrivals in heard.items():
        assert len({arrival.headers["webhook-id"] for arrival in arrivals}) == 1, (incident, transition)
        assert len(arrivals) == 1 or (incident, transition) in marked, f"{transition} came twice, unmarked"
        began = heard[incident, "opened"][0].at
        assert began <= arrivals[0].at, f"the end of {incident} was told before its beginning"


def _told(deaths: Counter[str]) -> str:
    elsewhere = deaths[NOT_REACHED] + deaths[IN_PASSING]
    at_steps = [kills for step, kills in deaths.items() if step in STEPS]
    return (
        f"{sum(at_steps)} kills at {len(at_steps)} steps ({min(at_steps)} to {max(at_steps)} at each) and "
        f"{elsewhere} elsewhere ({deaths[NOT_REACHED]} because the step was not reached)"
    )
