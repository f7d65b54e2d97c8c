"""The API as a process of its own, over real sockets and with real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from shared.testing.nats import NatsServer
from tests.integration.api.conftest import SECRET_KEY


@asynccontextmanager
async def api_process(database_url: str, nats_url: str, **environment: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "api.main",
        stderr=PIPE,
        env={
            "PATH": os.environ["PATH"],
            "TOCSIN_DATABASE_URL": database_url,
            "TOCSIN_NATS_URL": nats_url,
            "TOCSIN_SECRET_KEYS": SECRET_KEY,
            "TOCSIN_API_PORT": "0",
            **environment,
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def port_of(process: Process) -> int:
    """The port, from the line that the process logs when it listens."""
    assert process.stderr is not None
    async with asyncio.timeout(120):
        async for line in process.stderr:
            entry = json.loads(line)
            if entry["event"] == "api listening":
                return int(entry["port"])
    raise AssertionError("the process ended before it listened")


async def test_it_serves_and_ends_with_zero_on_sigterm(database_url: str, nats: NatsServer) -> None:
    async with (
        api_process(database_url, nats.url) as process,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{await port_of(process)}", timeout=60) as client,
    ):
        ready = await client.get("/readyz")
        assert ready.status_code == 200, ready.text
        assert ready.json()["checks"]["database"] == "ok"
        assert ready.json()["checks"]["nats"] == "ok"
        assert "server" not in ready.headers
        assert (await client.get("/v1/monitors")).status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = (await process.stderr.read()).decode()
        assert await process.wait() == 0
        assert "Traceback" not in log
        assert "never retrieved" not in log


async def test_a_database_without_schema_is_refused_in_one_line(nats: NatsServer, database_url: str) -> None:
    missing = database_url.replace("/test_", "/nowhere_")
    async with api_process(missing, nats.url) as process:
        assert process.stderr is not None
        log = (await process.stderr.read()).decode()
        assert await process.wait() == 1
    (line,) = [json.loads(line) for line in log.splitlines() if "the process ends" in line]
    assert "does not exist" in line["reason"]
    assert "TOCSIN_DATABASE_URL" in line["reason"]


async def test_an_address_in_use_is_said_in_one_line(database_url: str, nats: NatsServer) -> None:
    async with api_process(database_url, nats.url) as first:
        port = await port_of(first)
        async with api_process(database_url, nats.url, TOCSIN_API_PORT=str(port)) as second:
            assert second.stderr is not None
            log = (await second.stderr.read()).decode()
            assert await second.wait() == 1
    assert "ddress already in use" in log
    assert "Traceback" not in log
