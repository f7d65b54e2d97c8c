"""Three NATS servers, every stream on each of them, and the one that leads a stream is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats.errors import Error as NatsError

from shared.contracts.names import CHECKS_STREAM
from shared.messaging.connect import connect
from shared.testing.nats import NatsServer, free_port
from shared.testing.tocsin import eventually
from tests.chaos.conftest import under_load
from tests.chaos.faults import Fault
from tests.chaos.installation import Installation, clock
from tests.chaos.nats_faults import jetstream
from tests.chaos.report import Record
from tests.chaos.test_faults import balances

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.whole,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

DOWN_SECONDS = 10.0
FROZEN_SECONDS = 15.0
NAMES = ("n1", "n2", "n3")


class Cluster(Installation):
    """An installation on three servers; they elect a leader before the first stream can be declared."""

    async def start_servers(self) -> None:
        await super().start_servers()

        async def elected() -> bool:
            connection = await connect(
                [server.url for server in self.nats_servers], name="chaos", buffer_writes=False
            )
            try:
                await connection.js.account_info()
                return True
            except NatsError:
                return False
            finally:
                await connection.close()

        await eventually("the servers have a leader", elected, within=30, every=0.5)


def cluster_servers(folder: Path) -> list[NatsServer]:
    ports = [free_port() for _ in NAMES]
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    return [
        NatsServer(
            folder / name,
            arguments=[
                *("--name", name, "--cluster_name", "chaos"),
                *("--cluster", f"nats://127.0.0.1:{port}", "--routes", routes),
            ],
        )
        for name, port in zip(NAMES, ports, strict=True)
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("cluster")
    async for running in under_load(Cluster(folder, cluster_servers(folder))):
        yield running


async def kill_stream_leader(chaos: Installation) -> int:
    server = await stream_leader(chaos)
    killed = clock.now_ms()
    await server.kill()
    await asyncio.sleep(DOWN_SECONDS)
    await server.start()
    return killed


async def kill_the_majority(chaos: Installation) -> int:
    leader = await stream_leader(chaos)
    other = next(server for server in chaos.nats_servers if server is not leader)
    killed = clock.now_ms()
    await asyncio.gather(leader.kill(), other.kill())
    await asyncio.sleep(DOWN_SECONDS)
    await asyncio.gather(leader.start(), other.start())
    return killed


async def freeze_stream_leader(chaos: Installation) -> int:
    server = await stream_leader(chaos)
    frozen = clock.now_ms()
    server.freeze()
    await asyncio.sleep(FROZEN_SECONDS)
    server.thaw()
    return frozen


async def terminate_stream_leader(chaos: Installation) -> int:
    server = await stream_leader(chaos)
    told = clock.now_ms()
    await server.restart(down=DOWN_SECONDS)
    return told


async def stream_leader(chaos: Installation) -> NatsServer:
    async with jetstream(chaos) as js:
        cluster = (await js.stream_info(CHECKS_STREAM)).cluster
    assert cluster is not None
    assert cluster.leader is not None
    return chaos.nats_servers[NAMES.index(cluster.leader)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("3 NATS servers: SIGTERM of the stream leader", terminate_stream_leader, recovery=10, reruns=64),
        # Electing a leader of the stream takes the servers 3 to 9 s, in which schedulers hand over to workers.
        Fault("3 NATS servers: SIGKILL of the stream leader", kill_stream_leader, recovery=20, reruns=64),
        # One server of three has no streams at all, and still passes requests on.
        Fault("3 NATS servers: SIGKILL of two, 10 s", kill_the_majority, recovery=25, reruns=300),
        # Who is connected to the frozen one needs 2 to 3 s to notice. When it wakes, leaders change once more: as
        # after every fault of NATS, workers have 10 s from then.
        Fault(
            "3 NATS servers: SIGSTOP of the stream leader, 15 s",
            freeze_stream_leader,
            recovery=FROZEN_SECONDS + 10,
            missed=True,
            reruns=300,
        ),
    ],
    ids=lambda fault: fault.name,
)
async def test_a_lost_server_of_three_costs_no_slot_silently(
    cluster: Installation, fault: Fault, record_property: Record
) -> None:
    await balances(cluster, fault, record_property)
