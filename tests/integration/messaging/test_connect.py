"""Connecting: patience at the start, credentials, reconnects, and a clean end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.messaging.connect import NatsConnection, connect
from shared.messaging.errors import ConnectFailedError
from shared.testing.nats import FlakyProxy, NatsServer, free_port
from tests.integration.messaging.conftest import until


async def test_the_first_connection_waits_for_a_server_that_starts_late(tmp_path: Path) -> None:
    late = NatsServer(tmp_path)
    attempt = asyncio.create_task(connect([late.url], name="early", buffer_writes=True))
    await asyncio.sleep(0.5)
    assert not attempt.done()
    async with late:
        connection = await asyncio.wait_for(attempt, 30)
        assert connection.errors > 0
        await connection.close()


async def test_no_server_is_one_clear_line_without_the_password() -> None:
    port = free_port()
    before = asyncio.all_tasks()
    with pytest.raises(ConnectFailedError) as failure:
        await connect([f"nats://ada:hunter2@127.0.0.1:{port}"], name="x", buffer_writes=True, deadline=1)
    text = str(failure.value)
    assert "TOCSIN_NATS_URL" in text
    assert "ada:***@127.0.0.1" in text
    assert "Connect call failed" in text
    assert "hunter2" not in text
    assert "\n" not in text
    assert asyncio.all_tasks() == before


async def test_a_handshake_that_fails_leaves_no_socket_open(server: NatsServer, proxy: FlakyProxy) -> None:
    connection = await connect([proxy.url], name="x", buffer_writes=True)
    await server.kill()
    # What accepts in its place answers nothing. A socket that is left open warns when it is collected.
    await until(lambda: connection.errors >= 5, what="failed handshakes")
    await connection.close()


@pytest.mark.parametrize("url", ["nats://", "nats://127.0.0.1:port", "nats://[::1"])
async def test_an_unusable_address_fails_at_once(url: str) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(ConnectFailedError, match="TOCSIN_NATS_URL"):
            await connect([url], name="x", buffer_writes=True)


@pytest.mark.parametrize(
    ("arguments", "userinfo"),
    [(["--user", "ada", "--pass", "p@ss/word"], "ada:p%40ss%2Fword"), (["--auth", "t@ken"], "t%40ken")],
    ids=["user and password", "token"],
)
async def test_credentials_in_the_url_are_used_for_every_connection(
    tmp_path: Path, arguments: list[str], userinfo: str
) -> None:
    async with NatsServer(tmp_path, arguments=arguments) as server:
        connection = await connect([f"nats://{userinfo}@127.0.0.1:{server.port}"], name="x", buffer_writes=True)
        await server.restart()
        await until(lambda: connection.reconnects == 1)
        assert await connection.round_trip() < 10
        await connection.close()


async def test_wrong_credentials_fail_with_the_servers_reason(tmp_path: Path) -> None:
    async with NatsServer(tmp_path, arguments=["--user", "ada", "--pass", "right"]) as server:
        with pytest.raises(ConnectFailedError, match="Authorization Violation"):
            await connect([f"nats://ada:wrong@127.0.0.1:{server.port}"], name="x", buffer_writes=True, deadline=3)


async def test_every_reconnect_listener_is_called_until_it_is_removed(
    server: NatsServer, connection: NatsConnection
) -> None:
    calls: list[str] = []
    connection.add_reconnect_listener(lambda: calls.append("first"))
    remove = connection.add_reconnect_listener(lambda: calls.append("second"))
    await server.restart()
    await until(lambda: calls == ["first", "second"])
    remove()
    await server.restart()
    await until(lambda: calls == ["first", "second", "first"])


async def test_our_own_close_is_not_reported_and_leaves_no_task(server: NatsServer) -> None:
    before = asyncio.all_tasks()
    closed: list[bool] = []
    connection = await connect([server.url], name="x", buffer_writes=True, on_closed=lambda: closed.append(True))
    await connection.close()
    await connection.close()
    assert closed == []
    await until(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")


async def test_a_connection_that_is_closed_for_good_is_reported(server: NatsServer) -> None:
    closed: list[bool] = []
    connection = await connect([server.url], name="x", buffer_writes=True, on_closed=lambda: closed.append(True))
    await connection.client.close()
    assert closed == [True]


async def test_a_crowd_of_equal_errors_is_counted_and_logged_once(
    server: NatsServer, connection: NatsConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    await server.kill()
    await until(lambda: connection.errors >= 5)
    assert capsys.readouterr().out.count("NATS connection error") < connection.errors
