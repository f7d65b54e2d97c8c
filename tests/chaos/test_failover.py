"""How late a check begins when the leader dies, over many repetitions."""

from __future__ import annotations

import itertools
import signal
from statistics import median

import pytest

from shared.testing.tocsin import eventually
from tests.chaos.installation import Installation, clock
from tests.chaos.report import Record
from tests.chaos.suite import settled_books

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.whole,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1200),
]

REPETITIONS = 50


async def test_a_killed_or_frozen_leader_makes_no_check_later_than_two_seconds(
    chaos: Installation, record_property: Record
) -> None:
    faults = itertools.islice(itertools.cycle((killed, frozen)), REPETITIONS)
    moments = [await fault(chaos) for fault in faults]
    await judge(chaos, moments, "SIGKILL and SIGSTOP of the leader in turn", bound_ms=2_000, record=record_property)


async def test_a_terminated_leader_makes_no_check_later_than_half_a_second(
    chaos: Installation, record_property: Record
) -> None:
    moments = [await terminated(chaos) for _ in range(REPETITIONS)]
    await judge(chaos, moments, "SIGTERM of the leader", bound_ms=500, record=record_property)


async def killed(chaos: Installation) -> int:
    """Kill the leader and return when there is a leader and a standby again."""
    leader = await chaos.leader()
    moment = clock.now_ms()
    await leader.kill()
    await chaos.start([leader])
    await chaos.leader()
    return moment


async def frozen(chaos: Installation) -> int:
    leader, standby = await chaos.leader(), await chaos.standby()
    moment = clock.now_ms()
    leader.send(signal.SIGSTOP)

    async def took_over() -> bool:
        return await standby.metric("tocsin_scheduler_is_leader") == 1

    await eventually("the standby leads", took_over, within=10)
    leader.send(signal.SIGCONT)
    await leader.wait_until_ready()
    await chaos.leader()
    return moment


async def terminated(chaos: Installation) -> int:
    leader = await chaos.leader()
    moment = clock.now_ms()
    assert await leader.terminate() == 0
    await chaos.start([leader])
    await chaos.leader()
    return moment


async def judge(chaos: Installation, moments: list[int], name: str, bound_ms: int, record: Record) -> None:
    """The latest start of a check between each fault and the next."""
    end = clock.now_ms()
    books = await settled_books(chaos, moments[0], end, within=45)
    latest = [
        max(row.lateness_ms for row in books.run if begins < row.key.slot_ms <= ends)
        for begins, ends in itertools.pairwise([*moments, end])
    ]
    record(
        "figure",
        f"{name}, {len(latest)} times: the latest check begins {median(latest) / 1000:.2f} s (median), "
        f"{max(latest) / 1000:.2f} s (worst) after it was due; {len(books.missed)} of {books.due} slots missed, "
        f"{len(books.unaccounted)} unaccounted.",
    )
    print(sorted(latest))
    assert not books.unaccounted
    assert not books.missed
    assert max(latest) <= bound_ms
