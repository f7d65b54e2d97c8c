"""The heartbeat to the outside: sent while all is well, held back and told when not."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from shared.services.outside_heartbeat import OutsideHeartbeat


class World:
    """What is wrong inside and on the way, and how often somebody knocked."""

    def __init__(self) -> None:
        self.inside: str | None = None
        self.outside: str | None = None
        self.knocks = 0

    async def problem(self) -> str | None:
        return self.inside

    async def knock(self) -> str | None:
        self.knocks += 1
        return self.outside


async def turns(heartbeat: OutsideHeartbeat, number: int) -> list[str]:
    """Let it go round so often; answers what it said."""
    with capture_logs() as logs:
        task = asyncio.create_task(heartbeat.run())
        for _ in range(4 * number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [str(entry.get("problem", entry["event"])) for entry in logs]


@pytest.fixture
def world() -> World:
    return World()


async def test_it_beats_while_the_installation_works(world: World) -> None:
    assert await turns(OutsideHeartbeat(world.knock, world.problem, 0.0), 3) == []
    assert world.knocks >= 2


async def test_it_is_held_back_while_something_is_wrong_and_says_so_once(world: World) -> None:
    world.inside = "workers: deaf"
    heartbeat = OutsideHeartbeat(world.knock, world.problem, 0.0)
    assert await turns(heartbeat, 3) == ["held back: workers: deaf"]
    assert world.knocks == 0
    world.inside = None
    assert await turns(heartbeat, 3) == ["heartbeat to the outside is sent again"]
    assert world.knocks > 0


async def test_a_beat_that_nobody_received_is_told(world: World) -> None:
    world.outside = "the answer was 500"
    assert await turns(OutsideHeartbeat(world.knock, world.problem, 0.0), 2) == ["not received: the answer was 500"]
