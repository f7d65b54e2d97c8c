"""The faults. Each breaks something, mends what only an operator can mend, and answers when it was mended.

That moment, in wall-clock milliseconds, is what recovery is counted from: of a fault that the system has to survive
by itself it is the moment of the fault.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.contracts.names import CHECKS_STREAM, RESULTS_STREAM, SCHEDULES_BUCKET, worker_consumer
from shared.messaging.connect import connect
from shared.messaging.streams import bucket_stream
from shared.testing.tocsin import eventually
from tests.chaos.installation import Installation, clock
from tests.chaos.processes import Service

FREEZE_SECONDS = 15.0
NATS_FREEZE_SECONDS = 30.0

Play = Callable[[Installation], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and what it may cost.

    ``recovery`` bounds, in seconds after it was mended, when every check begins on time again; ``lateness`` how
    late a check may begin at all (None: the outage itself decides). ``missed`` says that slots may be recorded as
    missed: only where the whole system was down. ``reruns`` is how many checks may run twice, in the hands of
    whoever was killed.
    """

    name: str
    play: Play
    recovery: float
    lateness: float | None = None
    missed: bool = False
    reruns: int = 0
    whole: bool = True


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


async def kill_nats(chaos: Installation) -> int:
    await chaos.nats.kill()
    await chaos.nats.start()
    return clock.now_ms()


async def restart_nats(chaos: Installation) -> int:
    await chaos.nats.restart()
    return clock.now_ms()


async def freeze_nats(chaos: Installation) -> int:
    chaos.nats.freeze()
    await asyncio.sleep(NATS_FREEZE_SECONDS)
    chaos.nats.thaw()
    return clock.now_ms()


async def delete_everything_in_nats(chaos: Installation) -> int:
    """A consumer, then a bucket, then both streams, a second apart."""
    connection = await connect([chaos.nats.url], name="chaos", buffer_writes=False)
    try:
        await connection.js.delete_consumer(CHECKS_STREAM, worker_consumer("default"))
        for stream in (bucket_stream(SCHEDULES_BUCKET), CHECKS_STREAM, RESULTS_STREAM):
            await asyncio.sleep(1)
            await connection.js.delete_stream(stream)
    finally:
        await connection.close()
    return clock.now_ms()


async def kill_postgres(chaos: Installation) -> int:
    await chaos.postgres.kill()
    await chaos.postgres.start()
    return clock.now_ms()


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


QUICK = (
    Fault("SIGKILL of the leader", kill_leader, recovery=2, lateness=2),
    Fault("SIGSTOP of the leader, 15 s", freeze_leader, recovery=2, lateness=2),
    Fault("SIGTERM of the leader", terminate_leader, recovery=1, lateness=1),
    Fault("SIGKILL of a worker in the middle of a check", kill_worker_in_a_check, recovery=8, reruns=64),
    Fault("SIGKILL of NATS", kill_nats, recovery=10, reruns=10),
    Fault("consumer, bucket and both streams deleted", delete_everything_in_nats, recovery=10, missed=True),
    Fault("SIGKILL of PostgreSQL", kill_postgres, recovery=2, lateness=2),
    Fault("SIGKILL of all our processes at once", kill_all, recovery=20, missed=True, reruns=200),
)
