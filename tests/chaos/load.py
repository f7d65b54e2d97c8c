"""The load of the suite: 200 monitors every 5 s are 44 slots a second, because 20 of them run in both regions."""

from __future__ import annotations

from tests.chaos.installation import Installation

SLOW_SECONDS = 2


async def create_load(chaos: Installation) -> None:
    """In ``default`` 140 quick monitors and 10 slow ones, 30 in ``eu``, 20 in both."""
    await chaos.create_monitors([f"/m/{number}" for number in range(140)])
    await chaos.create_monitors([f"/slow/{SLOW_SECONDS}/{number}" for number in range(10)])
    await chaos.create_monitors([f"/m/eu-{number}" for number in range(30)], regions=("eu",))
    await chaos.create_monitors([f"/m/both-{number}" for number in range(20)], regions=("default", "eu"))
