"""Two recorders, many results at once: one incident, told once, and no result lost."""

from __future__ import annotations

import asyncio
import random
import re
from uuid import UUID

import pytest

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.services.recording import record
from tests.integration.db.tenants import add_organisation
from tests.integration.path.scene import Scene, make_scene

AT_ONCE = 20


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


async def all_at_once(scene: Scene, databases: list[Database], messages: list[ResultMessage]) -> None:
    """Each result in a transaction of its own, all behind one barrier, spread over the recorders."""
    barrier = asyncio.Barrier(len(messages))

    async def one(database: Database, message: ResultMessage) -> None:
        async with database.system() as session:
            await barrier.wait()
            await record(session, [message], scene.clock.now_ms())

    await asyncio.gather(
        *(one(databases[place % len(databases)], message) for place, message in enumerate(messages))
    )


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.slow)])
async def test_each_round_of_failures_and_successes_is_one_incident_told_once(
    scene: Scene, database_url: str, rounds: int
) -> None:
    monitor_id = await scene.monitor(interval_seconds=5, flap_window_seconds=0)
    async with (
        Database(database_url, application_name="recorder-1") as first,
        Database(database_url, application_name="recorder-2") as second,
    ):
        for number in range(rounds):
            for letter, transition in (("F", "opened"), ("S", "resolved")):
                scene.clock.advance(1)
                slots = [scene.clock.now_ms() + slot for slot in range(AT_ONCE)]
                random.Random(number).shuffle(slots)
                messages = [scene.result(monitor_id, letter, slot_ms=slot) for slot in slots]
                await all_at_once(scene, [first, second], messages)
                assert await scene.told() == [transition], (number, letter)
    incidents = await scene.incidents()
    assert [row.state for row in incidents] == ["resolved"] * rounds
    ((stored,),) = await scene.rows("SELECT count(*) FROM check_results")
    assert stored == rounds * 2 * AT_ONCE
    spans = await scene.history(monitor_id)
    assert [after[1] for after in spans[1:]] == [before[2] for before in spans[:-1]]
    assert [status for status, *_ in spans[1:]] == ["down", "up"] * rounds


class Crowd:
    """Everybody who touches states and incidents, at once."""

    def __init__(self, scene: Scene, monitor_ids: list[UUID], chance: random.Random) -> None:
        self._scene, self._monitor_ids, self._chance = scene, monitor_ids, chance

    async def record(self, worker: str) -> None:
        scene, chance = self._scene, self._chance
        for _ in range(25):
            scene.clock.advance(chance.choice([0.1, 5, 40]))
            chosen = zip(chance.sample(self._monitor_ids, 8), chance.choices("FSG", k=8), range(8), strict=True)
            await scene.record(
                scene.result(each, letter, worker=worker, slot_ms=scene.clock.now_ms() + place)
                for each, letter, place in chosen
            )

    async def sweep(self) -> None:
        for _ in range(30):
            await self._scene.sweep(0.3)

    async def look_again(self) -> None:
        for _ in range(15):
            await self._scene.reconsider(*self._chance.sample(self._monitor_ids, 6))
            await self._scene.mark_blind()


@pytest.mark.parametrize("seed", range(3))
async def test_recorders_the_sweep_and_the_search_for_blind_monitors_do_not_deadlock(
    scene: Scene, seed: int
) -> None:
    print(f"seed {seed}")
    monitor_ids = await scene.monitors(12)
    crowd = Crowd(scene, monitor_ids, random.Random(seed))
    await asyncio.gather(crowd.record("w1"), crowd.record("w2"), crowd.sweep(), crowd.look_again())
    await scene.sweep(100)
    await each_story_is_whole(scene)
    for monitor_id in monitor_ids:
        spans = await scene.history(monitor_id)
        assert [after[1] for after in spans[1:]] == [before[2] for before in spans[:-1]]


async def each_story_is_whole(scene: Scene) -> None:
    """Every end follows a beginning, nothing is told of a silent one, and the last word is where it stands."""
    for incident in await scene.incidents():
        told = await scene.rows(
            "SELECT payload->>'transition' FROM outbox WHERE topic = 'incident' AND key = :key ORDER BY id",
            key=str(incident.id),
        )
        story = "".join("r" if row[0] == "resolved" else "o" for row in told)
        ending = "r" if incident.state == "resolved" else "o"
        assert re.fullmatch("" if incident.silent else f"(?:o+r)*(?:o+)?(?<={ending})", story), (incident, story)
