"""Of three NATS servers the doctor sees the one that is away, and streams that were never spread."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from shared.messaging.beat import beats_stream
from shared.messaging.connect import connect
from shared.messaging.declarations import declared_streams
from shared.messaging.streams import ensure_streams
from shared.services.doctor import queue
from shared.testing.nats import NatsServer, free_port
from shared.testing.tocsin import eventually

WANTED = declared_streams(3)


PAGE = Path(__file__).parents[3] / "docs" / "nats.md"


def three_servers(folder: Path) -> list[NatsServer]:
    """Configured word for word as docs/nats.md says, but for addresses and the store."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Three servers")
    page = section.partition("```conf\n")[2].partition("```")[0]
    ports = {name: free_port() for name in ("n1", "n2", "n3")}
    servers = []
    for name, port in ports.items():
        text = page.replace("server_name: n1", f"server_name: {name}").replace("0.0.0.0:6222", f"127.0.0.1:{port}")
        for other, other_port in ports.items():
            text = text.replace(f"nats://{other}:6222", f"nats://127.0.0.1:{other_port}")
        configuration = folder / f"{name}.conf"
        configuration.write_text(text.replace("  store_dir: /data/jetstream\n", ""))
        servers.append(NatsServer(folder / name, arguments=("-c", str(configuration))))
    return servers


@pytest.mark.slow
async def test_a_server_of_the_cluster_that_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_PASSWORD", '"12345678"')
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(server) for server in three_servers(tmp_path)]
        connection = await connect(
            [server.url.replace("nats://", "nats://tocsin:12345678@") for server in servers[:2]],
            name="tests",
            buffer_writes=False,
        )
        stack.push_async_callback(connection.close)

        async def declared() -> bool:
            try:
                await ensure_streams(connection.js, 3)
            except NatsError:
                return False
            return True

        await eventually("the streams", declared, within=90, every=0.5)
        assert await queue.streams(connection, WANTED) == []
        [finding, *_] = await queue.streams(connection, (*declared_streams(1), beats_stream(1)))
        assert "num_replicas is 3, not 1" in finding.what

        async def in_step() -> bool:
            return await queue.replicas_in_step(connection, WANTED) == []

        await eventually("all in step", in_step, within=90, every=0.5)
        await servers[2].stop()

        async def is_named() -> bool:
            found = await queue.replicas_in_step(connection, WANTED)
            return any("replica on n3 is away" in finding.what and "n3" in finding.mend for finding in found)

        await eventually("the server that is away", is_named, within=90, every=0.5)
