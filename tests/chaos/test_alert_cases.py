"""Cases of real users, from a failing check to the receiver, in a whole installation whose worker is killed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.testing.tocsin import Tocsin, eventually
from tests.integration.channels.sinks import Answer, Arrival, HttpSink

pytestmark = [pytest.mark.chaos, pytest.mark.whole, pytest.mark.timeout(600)]

INTERVAL = 5


class Site(HttpSink):
    """Many targets in one: those whose path is in ``broken`` answer 500."""

    def __init__(self) -> None:
        super().__init__(self._look)
        self.broken: set[str] = set()

    def _look(self, arrival: Arrival) -> Answer:
        return Answer(500 if arrival.path in self.broken else 200)


async def watch(tocsin: Tocsin, site: Site, paths: list[str]) -> dict[str, str]:
    """A monitor for each path, all of them up; answers path by monitor id."""
    made = {}
    for path in paths:
        check = {"kind": "http", "url": f"{site.url}{path}"}
        monitor = await tocsin.create_monitor(name=path, interval_seconds=INTERVAL, check=check)
        made[monitor["id"]] = path

    async def all_up() -> bool:
        answer = await tocsin.client.get("/v1/monitors", params={"status": "up", "limit": 1000})
        return len(answer.json()["items"]) == len(paths)

    await eventually("all monitors up", all_up, within=60)
    return made


async def add_channel(tocsin: Tocsin, **fields: Any) -> str:
    answer = await tocsin.client.post("/v1/channels", json={"name": "ops", "kind": "webhook", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def told(sink: HttpSink, kind: str) -> Counter[str]:
    """How often each monitor's incident was told, by the name of the monitor."""
    bodies = [arrival.json for arrival in sink.accepted]
    return Counter(body["data"]["monitor"]["name"] for body in bodies if body["type"] == f"incident.{kind}")


async def test_thirty_fail_together_the_channel_asks_to_wait_and_the_worker_is_killed(tmp_path: Path) -> None:
    """NOTIF-01."""
    async with Site() as site, HttpSink() as sink, Tocsin(tmp_path / "data") as tocsin:
        failing = [f"/fail/{number}" for number in range(30)]
        await watch(tocsin, site, [*failing, *(f"/well/{number}" for number in range(60))])
        sink.answers.extend([Answer(429, {"Retry-After": "3"})] * 30)
        channel = await add_channel(tocsin, config={"url": f"{sink.url}/hook"})
        site.broken = set(failing)

        async def asked_to_wait() -> bool:
            return len(sink.arrivals) >= 20

        await eventually("posts", asked_to_wait, within=60)
        tocsin.send("worker-1", signal.SIGKILL)

        async def all_told() -> bool:
            return len(told(sink, "opened")) == 30

        await eventually("30 told", all_told, within=150)
        site.broken = set()

        async def all_over() -> bool:
            return len(told(sink, "resolved")) == 30

        await eventually("30 over", all_over, within=150)
        await _no_delivery_open(tocsin, channel)
        refused: dict[str, float] = {}
        for arrival in sink.arrivals:
            name = arrival.headers["webhook-id"]
            if arrival.answered == 429:
                refused[name] = arrival.at
            elif name in refused:
                assert arrival.at - refused[name] >= 3.0, "before Retry-After"
        log = await _deliveries(tocsin, channel)
        marked = {item["id"].replace("-", "") for item in log if item["possibly_duplicated"]}
        arrivals: dict[str, int] = defaultdict(int)
        for arrival in sink.accepted:
            arrivals[arrival.headers["webhook-id"].removeprefix("msg_")] += 1
        assert {name for name, count in arrivals.items() if count > 1} <= marked
        assert {item["state"] for item in log} == {"delivered"}


async def _deliveries(tocsin: Tocsin, channel: str) -> list[dict[str, Any]]:
    answer = await tocsin.client.get(f"/v1/channels/{channel}/deliveries", params={"limit": 1000})
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def _no_delivery_open(tocsin: Tocsin, channel: str) -> None:
    async def settled() -> bool:
        return all(item["settled_at"] for item in await _deliveries(tocsin, channel))

    await eventually("deliveries settled", settled, within=90)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
async def test_no_secret_shows_in_logs_or_rows(level: str, tmp_path: Path, database_url: str) -> None:
    """NOTIF-03."""
    environment = {"TOCSIN_LOG_LEVEL": level, "TOCSIN_DATABASE_URL": database_url}
    async with Site() as site, HttpSink() as sink, Tocsin(tmp_path / "data", environment=environment) as tocsin:
        address = f"127.0.0.1:{site.port}"
        urls = [f"http://u%40d:SECRET3%3d@{address}/{n}?token=SECRET4" for n in range(2)]
        for url in urls:
            await tocsin.create_monitor(
                name="guarded", interval_seconds=INTERVAL, check={"kind": "http", "url": url}
            )
        await watch_well(tocsin, site)
        answers = [Answer(500, body=b"/bot1:SECRET1/send?key=SECRET2"), Answer(hang_up=True), Answer(200)]
        sink.answers.extend(answers)
        config = {"url": f"{sink.url}/bot1:SECRET1/send?key=SECRET2"}
        await add_channel(tocsin, config=config)
        await add_channel(tocsin, config={"url": "http://127.0.0.1:1/bot1:SECRET1/send?key=SECRET2"})
        await add_channel(tocsin, config={"url": f"https://{address}/bot1:SECRET1/send?key=SECRET2"})
        site.broken = {f"/{n}?token=SECRET4" for n in range(2)}

        async def delivered() -> bool:
            return len(sink.accepted) >= 2

        await eventually("told", delivered, within=60)
        assert site.arrivals[0].headers["authorization"] == "Basic dUBkOlNFQ1JFVDM9"  # u@d:SECRET3=
        channels = (await tocsin.client.get("/v1/channels")).json()["items"]
        logs = [await tocsin.client.get(f"/v1/channels/{channel['id']}/deliveries") for channel in channels]
        shown = {
            "API": json.dumps(channels) + "".join(answer.text for answer in logs),
            "incidents": (await tocsin.client.get("/v1/incidents")).text,
            "alerts": b"".join(arrival.body for arrival in sink.arrivals).decode(),
            "rows": await _rows(database_url),
            "logs": "".join(file.read_text(errors="replace") for file in (tmp_path / "data").rglob("*.log")),
            "output": tocsin.output.read_text(errors="replace"),
        }
        assert len(shown["logs"]) > 1000
        assert {place for place, text in shown.items() if "SECRET" in text} == set()


async def watch_well(tocsin: Tocsin, site: Site) -> None:
    """Enough that is well for the failures to be believed."""
    for number in range(20):
        check = {"kind": "http", "url": f"{site.url}/well/{number}"}
        await tocsin.create_monitor(name=f"well {number}", interval_seconds=INTERVAL, check=check)
    await asyncio.sleep(INTERVAL)


async def _rows(database_url: str) -> str:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("SET ROLE tocsin_system")
        tables = (
            "channels",
            "deliveries",
            "incidents",
            "incident_events",
            "outbox",
            "check_results",
            "monitor_state",
        )
        parts = [str(await connection.fetchval(f"SELECT jsonb_agg(t) FROM {table} AS t")) for table in tables]
        return "\n".join(parts)
    finally:
        await connection.close()
