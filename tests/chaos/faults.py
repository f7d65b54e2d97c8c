"""Faults of our processes. Each fault breaks something, mends what only an operator can, and answers when that was.

That moment, in wall-clock milliseconds, is what recovery is counted from: of a fault that the system has to survive
by itself it is the moment of the fault.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.testing.tocsin import eventually
from tests.chaos.installation import Installation, clock
from tests.chaos.processes import Service

FREEZE_SECONDS = 15.0
REPLACEMENTS = 10
STEPPED_SECONDS = 6.0

Play = Callable[[Installation], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and what it may cost.

    ``recovery`` bounds, in seconds after it was mended, when every check begins on time again; ``lateness`` how
    late a check may begin at all (None: the outage itself decides). ``missed`` says that slots may be recorded as
    missed: only where the whole system was down. ``reruns`` is how many checks may run twice, in the hands of
    whoever was killed. ``gap`` bounds the time between the starts of two checks. ``settled`` is how long the last
    records may take to be stored.
    """

    name: str
    play: Play
    recovery: float
    lateness: float | None = None
    missed: bool = False
    reruns: int = 0
    gap: float | None = None
    settled: float = 45.0


async def kill_leader(chaos: Installation) -> int:
    return await _kill(chaos, await chaos.leader())


async def kill_standby(chaos: Installation) -> int:
    return await _kill(chaos, await chaos.standby())


async def freeze_leader(chaos: Installation) -> int:
    return await _freeze(await chaos.leader())


async def freeze_standby(chaos: Installation) -> int:
    return await _freeze(await chaos.standby())


async def terminate_leader(chaos: Installation) -> int:
    return await _terminate(chaos, await chaos.leader())


async def terminate_standby(chaos: Installation) -> int:
    return await _terminate(chaos, await chaos.standby())


async def kill_worker_in_a_check(chaos: Installation) -> int:
    worker = chaos.services["worker-1"]

    async def checking() -> bool:
        return await worker.metric("tocsin_checks_in_flight") > 0

    await eventually("worker-1 runs a check", checking, within=20, every=0.02)
    return await _kill(chaos, worker)


async def freeze_worker(chaos: Installation) -> int:
    return await _freeze(chaos.services["worker-1"])


async def terminate_worker(chaos: Installation) -> int:
    return await _terminate(chaos, chaos.services["worker-1"])


async def kill_all(chaos: Installation) -> int:
    services = list(chaos.services.values())
    for service in services:
        service.send(signal.SIGKILL)
    await asyncio.gather(*(service.wait() for service in services))
    mended = clock.now_ms()
    await chaos.start(services)
    return mended


async def _kill(chaos: Installation, service: Service) -> int:
    """SIGKILL; the process is started again at once, as a supervisor does."""
    killed = clock.now_ms()
    await service.kill()
    await chaos.start([service])
    return killed


async def _terminate(chaos: Installation, service: Service) -> int:
    told = clock.now_ms()
    assert await service.terminate() == 0, f"{service.name} ends cleanly on SIGTERM"
    await chaos.start([service])
    return told


async def _freeze(service: Service) -> int:
    frozen = clock.now_ms()
    service.send(signal.SIGSTOP)
    await asyncio.sleep(FREEZE_SECONDS)
    service.send(signal.SIGCONT)
    return frozen


async def replace_everything(chaos: Installation) -> int:
    """Ten rolling updates: each process gets a successor, and is told to stop when that one is ready."""
    begun = clock.now_ms()
    for _ in range(REPLACEMENTS):
        for name in list(chaos.services):
            await chaos.replace(name)
    return begun


async def step_clock_of_leader(chaos: Installation) -> int:
    return await _step_clock(chaos, await chaos.leader())


async def step_clock_of_standby(chaos: Installation) -> int:
    return await _step_clock(chaos, await chaos.standby())


async def step_clock_of_worker(chaos: Installation) -> int:
    return await _step_clock(chaos, chaos.services["worker-1"])


async def _step_clock(chaos: Installation, service: Service) -> int:
    """An hour ahead for a while, then an hour behind, then right again."""
    begun = clock.now_ms()
    for step in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2, signal.SIGUSR1):
        service.send(step)
        await asyncio.sleep(STEPPED_SECONDS)
    return begun
