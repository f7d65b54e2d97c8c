"""From a failure to the right person, in the whole product as it starts: what no part of it proves alone.

Each test needs another part of the worker or the API process to have been started: relay, notifier and sweep, the
judge of heartbeats, the keeper of maintenance windows, the canaries, the jobs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from shared.testing.tocsin import Tocsin, eventually
from tests.acceptance.targets import Target
from tests.commands import run
from tests.integration.channels.sinks import HttpSink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 60.0


@dataclass
class World:
    """A running installation, what it checks, what its worker must be able to reach, and who is told."""

    tocsin: Tocsin
    target: Target
    canary: Target
    sink: HttpSink

    async def watch(self) -> str:
        """A monitor of the target that is up."""
        url = f"http://127.0.0.1:{self.target.port}/"
        monitor = await self.tocsin.create_monitor(
            name="Shop", interval_seconds=5, flap_window_seconds=0, check={"kind": "http", "url": url}
        )
        await self.turns(monitor["id"], "up")
        return str(monitor["id"])

    async def turns(self, monitor_id: str, status: str) -> None:
        async def turned() -> bool:
            return bool((await self.tocsin.monitor(monitor_id))["status"] == status)

        await eventually(status, turned, within=PATIENCE)

    async def hears(self, monitor_id: str, *transitions: str) -> None:
        """That all this, and nothing else, is told of a monitor."""

        async def heard() -> bool:
            return self.told(monitor_id) == list(transitions)

        try:
            await eventually(" ".join(transitions), heard, within=PATIENCE)
        except AssertionError as error:
            results = await self.tocsin.results(monitor_id)
            incidents = await self.tocsin.client.get("/v1/incidents", params={"monitor_id": monitor_id})
            raise AssertionError(f"{error}: {self.told(monitor_id)} of {incidents.text}, {results[:9]}") from None

    def told(self, monitor_id: str) -> list[str]:
        bodies = [arrival.json for arrival in self.sink.accepted]
        return [
            body["type"].partition(".")[2]
            for body in bodies
            if (body["data"]["monitor"] or {}).get("id") == monitor_id
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Target() as target, Target() as canary, HttpSink() as sink:
        environment = {"TOCSIN_CANARIES": f"http://127.0.0.1:{canary.port}/"}
        data = tmp_path_factory.mktemp("alerts") / "data"
        async with Tocsin(data, "--schedulers", "1", environment=environment) as tocsin:
            channel = {"name": "ops", "kind": "webhook", "config": {"url": sink.url}}
            assert (await tocsin.client.post("/v1/channels", json=channel)).status_code == 201
            yield World(tocsin, target, canary, sink)


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: World) -> World:
    running.target.status = 200
    return running


async def test_a_target_that_fails_is_told_and_so_is_its_recovery(world: World) -> None:
    monitor_id = await world.watch()
    world.target.status = 503
    await world.hears(monitor_id, "opened")
    world.target.status = 200
    await world.hears(monitor_id, "opened", "resolved")


async def test_a_job_that_reports_its_failure_and_one_that_reports_nothing_are_told(world: World) -> None:
    async def expect(**check: Any) -> tuple[str, str]:
        fields = {"name": "Backup", "check": {"kind": "heartbeat", **check}}
        monitor = await world.tocsin.create_monitor(**fields)
        return str(monitor["id"]), str(monitor["heartbeat"]["ping_path"])

    failing, path = await expect(period_seconds=3600)
    silent, _ = await expect(period_seconds=10, grace_seconds=1)
    assert (await world.tocsin.client.post(f"{path}/3")).status_code == 200
    await world.hears(failing, "opened")
    assert (await world.tocsin.client.get(path)).status_code == 200
    await world.hears(failing, "opened", "resolved")
    await world.hears(silent, "opened")


async def test_the_edges_of_a_maintenance_window_are_seen_without_any_result(world: World) -> None:
    fields = {"name": "Monthly", "check": {"kind": "heartbeat", "period_seconds": 86_400}}
    monitor_id = (await world.tocsin.create_monitor(**fields))["id"]
    times = {"starts_at": "2020-01-01T00:00:00Z", "ends_at": "2100-01-01T00:00:00Z"}
    window = {"name": "Move", "monitors": [monitor_id], **times}
    answer = await world.tocsin.client.post("/v1/maintenance-windows", json=window)
    assert answer.status_code == 201, answer.text
    await world.turns(monitor_id, "maintenance")
    assert (await world.tocsin.client.delete(answer.headers["Location"])).is_success
    await world.turns(monitor_id, "pending")


async def test_a_worker_that_fails_its_canaries_blames_no_target(world: World) -> None:
    monitor_id = await world.watch()
    await world.canary.close()
    world.target.status = 503

    async def doubted() -> bool:
        results = await world.tocsin.results(monitor_id)
        return any("fails its canaries" in (result["error"] or {}).get("message", "") for result in results)

    await eventually("a failure is no evidence", doubted, within=PATIENCE)
    assert "down" not in {result["status"] for result in await world.tocsin.results(monitor_id)}
    await world.canary.open()
    await world.hears(monitor_id, "opened")


async def test_jobs_are_run_and_listed_by_the_command(world: World) -> None:
    async def command(*words: str) -> tuple[int, str]:
        return await run(sys.executable, "-m", "cli.main", *words, "--data-dir", str(world.tocsin.data))

    async def listed() -> dict[str, str]:
        code, output = await command("jobs", "list", "--json")
        assert code == 0, output
        return {job["name"]: job["last_status"] for job in json.loads(output)}

    async def all_succeeded() -> bool:
        return set((await listed()).values()) == {"succeeded"}

    await eventually("every job has run", all_succeeded, within=PATIENCE, every=1)
    assert {"create_partitions", "audit_slots"} <= (await listed()).keys()
    code, output = await command("jobs", "run", "drop_partitions")
    assert (code, output) == (0, "drop_partitions is not due: nothing was done (--force runs it all the same)\n")
    code, output = await command("jobs", "run", "create_partitions", "--force", "--json")
    assert (code, json.loads(output)["status"]) == (0, "succeeded")
    assert await command("dead-letters", "list") == (0, "There are no dead letters.\n")
