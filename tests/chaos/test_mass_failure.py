"""A thousand monitors that fail at once behind one worker are one incident; thirty that really fail are thirty."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.testing.tocsin import Tocsin, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.timeout(600)]

MONITORS, REALLY_FAILING, INTERVAL = 1_000, 30, 10


class World:
    """All targets and the sink of the webhooks."""

    def __init__(self) -> None:
        self.dark = False
        self.failing: set[str] = set()
        self.told: list[dict[str, Any]] = []

    def take(self, path: str, body: bytes) -> int:
        if path == "/hook":
            self.told.append(json.loads(body))
            return 200
        return 500 if self.dark or path in self.failing else 200

    def kinds(self, since: int) -> Counter[str]:
        return Counter(event["type"] for event in self.told[since:])


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[str]:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r")[0] or 0)
            status = world.take(head.split(" ", 2)[1], await reader.readexactly(length))
            writer.write(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a check that was cut short
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=1024)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def create(tocsin: Tocsin, base: str) -> None:
    channel = {"name": "sink", "kind": "webhook", "config": {"url": f"{base}/hook"}}
    assert (await tocsin.client.post("/v1/channels", json=channel)).status_code == 201
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with gate:
            check = {"kind": "http", "url": f"{base}/{number}"}
            await tocsin.create_monitor(name=str(number), interval_seconds=INTERVAL, check=check)

    await asyncio.gather(*(one(number) for number in range(MONITORS)))


async def states(tocsin: Tocsin, status: str) -> int:
    answer = await tocsin.client.get("/v1/monitors", params={"status": status, "limit": 1000})
    return len(answer.json()["items"])


async def test_a_mass_failure_is_one_incident_and_real_failures_are_many(tmp_path: Path) -> None:
    world = World()
    async with serving(world) as base, Tocsin(tmp_path / "data") as tocsin:
        await create(tocsin, base)

        async def all_are(status: str, number: int = MONITORS) -> None:
            async def there() -> bool:
                return await states(tocsin, status) == number

            await eventually(f"{number} monitors are {status}", there, within=60, every=1)

        await all_are("up")
        assert world.kinds(0) == {}

        world.dark = True
        await all_are("down")
        world.dark = False
        await all_are("up")

        async def platform_resolved() -> bool:
            return world.kinds(0)["platform.alert"] == 2

        await eventually("the platform's incident is over", platform_resolved, within=30)
        assert world.kinds(0) == {"platform.alert": 2}

        before = len(world.told)
        world.failing = {f"/{number}" for number in range(0, MONITORS, MONITORS // REALLY_FAILING)}
        await all_are("down", len(world.failing))

        async def each_is_told() -> bool:
            return world.kinds(before)["incident.opened"] == len(world.failing)

        await eventually("each real failure is told", each_is_told, within=30)
        assert world.kinds(before) == {"incident.opened": len(world.failing)}
