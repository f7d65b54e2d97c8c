"""The embedded nats-server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import nats
import pytest

from cli.data_directory import DataDirectory
from cli.readiness import is_free
from shared.embedded.nats import HOST, Nats, installation
from tests.integration.embedded.processes import eventually, is_alive


@pytest.fixture
def server(tmp_path: Path) -> Nats:
    directory = DataDirectory(tmp_path)
    port, monitor_port = (directory.port(name, lambda port: is_free(HOST, port)) for name in ("nats", "monitor"))
    return Nats(tmp_path / "nats", port=port, monitor_port=monitor_port, password='it\'s "secret" {here}')


@asynccontextmanager
async def running(server: Nats) -> AsyncIterator[asyncio.subprocess.Process]:
    await server.prepare()
    with (server.directory / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*server.command, stderr=log, start_new_session=True)
    try:
        await asyncio.wait_for(server.ready(), 60)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def test_the_child_is_the_server_itself(server: Nats) -> None:
    async with running(server) as process:
        assert Path(f"/proc/{process.pid}/exe").readlink() == installation().resolve()


async def test_it_wants_the_password_which_only_the_owner_can_read(server: Nats) -> None:
    async with running(server):
        connection = await nats.connect(server.url)
        await connection.close()
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"CONNECT {}\r\nPING\r\n")
        answer = await reader.read()
        writer.close()
    assert b"Authorization Violation" in answer
    assert b"PONG" not in answer
    assert (server.directory / "nats.conf").stat().st_mode & 0o777 == 0o600


async def test_acknowledged_messages_survive_a_kill(server: Nats) -> None:
    async with running(server) as process:
        connection = await nats.connect(server.url, allow_reconnect=False)
        jetstream = connection.jetstream()
        await jetstream.add_stream(name="KEPT", subjects=["kept"])
        await jetstream.publish("kept", b"x" * 2_000_000)
        process.kill()
        await process.wait()
        await connection.close()
    async with running(server):
        connection = await nats.connect(server.url)
        assert (await connection.jetstream().stream_info("KEPT")).state.messages == 1
        await connection.close()


async def test_a_server_of_a_killed_run_is_stopped_before_the_next_one_starts(server: Nats) -> None:
    async with running(server) as orphan, running(replace(server)) as process:
        await eventually(lambda: not is_alive(orphan.pid))
        assert process.pid != orphan.pid


async def test_another_program_that_has_the_old_number_is_left_alone(server: Nats) -> None:
    await server.prepare()
    (server.directory / "nats.pid").write_text(str(os.getpid()))
    async with running(server):
        pass
