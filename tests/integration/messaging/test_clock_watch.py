"""A machine's clock that somebody sets: followed when the server agrees, ignored when it does not."""

from __future__ import annotations

import pytest

from shared.domain.clock import SteadyClock, SystemClock
from shared.messaging.clock_watch import ClockWatch
from shared.messaging.connect import NatsConnection

HOUR_MS = 3_600_000


class SettableClock(SystemClock):
    """The machine: its wall clock can be set."""

    __slots__ = ("offset_ms",)

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


def error_ms(clock: SteadyClock) -> int:
    return abs(clock.now_ms() - SystemClock().now_ms())


@pytest.mark.parametrize("jump", [HOUR_MS, -HOUR_MS, 5_000, -5_000])
async def test_a_wrong_jump_is_ignored_and_told(connection: NatsConnection, jump: int) -> None:
    machine = SettableClock()
    clock = SteadyClock(machine)
    watch = ClockWatch(connection, clock)
    machine.offset_ms = jump
    await watch.look()
    assert error_ms(clock) < 1_000
    assert watch.problem() is not None
    machine.offset_ms = 0
    await watch.look()
    assert watch.problem() is None


@pytest.mark.parametrize("wrong", [HOUR_MS, -HOUR_MS])
async def test_a_clock_that_was_wrong_from_the_start_is_mended(connection: NatsConnection, wrong: int) -> None:
    machine = SettableClock(wrong)
    clock = SteadyClock(machine)
    watch = ClockWatch(connection, clock)
    machine.offset_ms = 0
    await watch.look()
    assert error_ms(clock) < 1_000
    assert watch.problem() is None


async def test_small_corrections_are_followed(connection: NatsConnection) -> None:
    machine = SettableClock()
    clock = SteadyClock(machine)
    machine.offset_ms = 400
    await ClockWatch(connection, clock).look()
    assert 350 < clock.now_ms() - SystemClock().now_ms() < 450
