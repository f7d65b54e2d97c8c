"""The one thing the product exists for, as its user sees it: real command, servers, sockets and certificates."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shared.domain.clock import SystemClock, to_milliseconds
from shared.domain.slots import Cadence, slots_between
from shared.testing.tocsin import Tocsin, eventually
from tests.acceptance.targets import Authority, Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INTERVAL = 5
clock = SystemClock()


async def status_of(tocsin: Tocsin, monitor_id: str) -> tuple[str, str | None]:
    """Status and error kind of the last result."""
    monitor = await tocsin.monitor(monitor_id)
    error = (monitor["last_result"] or {}).get("error")
    return monitor["status"], error and error["kind"]


async def becomes(tocsin: Tocsin, monitor_id: str, status: str, kind: str | None = None) -> None:
    async def turned() -> bool:
        return await status_of(tocsin, monitor_id) == (status, kind)

    await eventually(f"{monitor_id} {status} {kind}", turned)


def http_check(target: Target, scheme: str = "http", **fields: Any) -> dict[str, Any]:
    return {"kind": "http", "url": f"{scheme}://localhost:{target.port}/", **fields}


async def test_up_down_and_up_again_and_the_history_survives_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        Target() as plain,
        Target(authority.certificate()) as secure,
        Tocsin(tmp_path / "data", environment=authority.environment) as tocsin,
    ):
        assertions = [
            {"source": "status", "operator": "in", "value": "200-299"},
            {"source": "body", "operator": "contains", "value": "ready"},
            {"source": "json", "path": "$.queue.depth", "operator": "lt", "value": 100},
            {"source": "header", "path": "content-type", "operator": "matches", "value": "^application/json"},
        ]
        web = (
            await tocsin.create_monitor(
                name="Shop", interval_seconds=INTERVAL, check=http_check(plain, assertions=assertions)
            )
        )["id"]
        https = (
            await tocsin.create_monitor(name="Secure", interval_seconds=INTERVAL, check=http_check(secure, "https"))
        )["id"]
        certificate = (
            await tocsin.create_monitor(
                name="Certificate",
                interval_seconds=INTERVAL,
                check={"kind": "ssl", "host": "localhost", "port": secure.port},
            )
        )["id"]
        everything = (web, https, certificate)
        for monitor_id in everything:
            await becomes(tocsin, monitor_id, "up")
            await first_is_checked_at_once(tocsin, monitor_id)
        await facts_are_kept(tocsin, https, certificate)

        plain.body = b'{"queue": {"depth": 3}}'
        await becomes(tocsin, web, "down", "keyword_missing")
        plain.status = 500
        await becomes(tocsin, web, "down", "status_code")
        await plain.close()
        await secure.present(authority.certificate(days_left=-2))
        await becomes(tocsin, web, "down", "connect_refused")
        await becomes(tocsin, https, "down", "tls_expired")
        await becomes(tocsin, certificate, "down", "tls_expired")
        plain.status, plain.body = 200, b'{"ready": true, "queue": {"depth": 3}}'
        await plain.open()
        await secure.present(authority.certificate())
        for monitor_id in everything:
            await becomes(tocsin, monitor_id, "up")

        await pausing_stops_the_checks(tocsin, plain, web)
        before = {monitor_id: await tocsin.results(monitor_id) for monitor_id in everything}
        assert await tocsin.stop() == 0
        await tocsin.start()
        for monitor_id in everything:
            kept = {result["scheduled_at"] for result in await tocsin.results(monitor_id)}
            assert {result["scheduled_at"] for result in before[monitor_id]} <= kept
            newest = max(kept)

            async def goes_on(monitor_id: str = monitor_id, newest: str = newest) -> bool:
                results = await tocsin.results(monitor_id)
                return bool(results[0]["scheduled_at"] > newest and results[0]["status"] == "up")

            await eventually(f"{monitor_id} goes on", goes_on)


async def first_is_checked_at_once(tocsin: Tocsin, monitor_id: str) -> None:
    """The first result is of the moment of creation, which no later slot can stand for."""
    monitor, results = await tocsin.monitor(monitor_id), await tocsin.results(monitor_id)
    created, first = (datetime.fromisoformat(text) for text in (monitor["created_at"], results[-1]["scheduled_at"]))
    assert abs(to_milliseconds(first) - to_milliseconds(created)) < 1_000
    assert results[-1]["status"] == "up"


async def facts_are_kept(tocsin: Tocsin, https: str, certificate: str) -> None:
    """What a result tells beside its verdict."""
    [result, *_] = await tocsin.results(https)
    assert result["http"]["status_code"] == 200
    assert result["timings_ms"]["total"] >= result["timings_ms"]["tls"] > 0
    assert result["http"]["remote_address"].startswith("127.0.0.1:")
    [result, *_] = await tocsin.results(certificate)
    assert result["tls"]["version"] == "TLSv1.3"
    assert result["tls"]["certificate"]["days_left"] in (89, 90)
    assert "localhost" in result["tls"]["certificate"]["sans"]


async def pausing_stops_the_checks(tocsin: Tocsin, target: Target, monitor_id: str) -> None:
    """No request after five seconds of pause, whatever the schedule says; and again after resuming."""
    (await tocsin.client.post(f"/v1/monitors/{monitor_id}/pause")).raise_for_status()
    assert (await tocsin.monitor(monitor_id))["status"] == "paused"
    await asyncio.sleep(INTERVAL)  # the promise itself: five seconds
    seen = target.requests
    await asyncio.sleep(INTERVAL + 1)  # a whole interval without a request is what is to be shown
    assert target.requests == seen
    (await tocsin.client.post(f"/v1/monitors/{monitor_id}/resume")).raise_for_status()

    async def asked_again() -> bool:
        return target.requests > seen

    await eventually("checked again after resuming", asked_again)


async def test_run_now_and_preview_answer_with_the_result(tmp_path: Path) -> None:
    async with Target() as target, Tocsin(tmp_path / "data") as tocsin:
        answer = await tocsin.client.post("/v1/checks", json={"check": http_check(target)})
        assert (answer.status_code, answer.json()["status"]) == (200, "up"), answer.text
        target.status = 503
        monitor = await tocsin.create_monitor(name="m", interval_seconds=3600, check=http_check(target))
        await becomes(tocsin, monitor["id"], "down", "status_code")
        target.status = 200
        answer = await tocsin.client.post(f"/v1/monitors/{monitor['id']}/check")
        assert (answer.status_code, answer.json()["status"]) == (200, "up"), answer.text
        await becomes(tocsin, monitor["id"], "up")
        assert [result["trigger"] for result in await tocsin.results(monitor["id"])] == ["manual", "schedule"]


async def test_killing_any_child_loses_no_slot(tmp_path: Path) -> None:
    # With one worker alone it would be decided by how fast this machine starts another.
    async with Target() as target, Tocsin(tmp_path / "data", "--workers", "2") as tocsin:
        # A slot is missed when the next one is due: longer than any machine takes to start a process again.
        monitors = [
            await tocsin.create_monitor(name=f"m{index}", interval_seconds=20, check=http_check(target))
            for index in range(100)
        ]
        begun = clock.now_ms()
        for name in ("worker-1", "scheduler-1", "scheduler-2", "nats", "postgres", "api"):
            await asyncio.sleep(1)  # some load between two faults
            await kill_and_wait(tocsin, name)
        ended = clock.now_ms()
        books = Books(monitors, begun, ended)

        async def balanced() -> bool:
            await books.read(tocsin)
            return not books.unaccounted

        await eventually("every slot has its result", balanced, within=90, every=1)
        assert books.doubled == []
        assert books.missed == [], "each slot was run, none was only recorded as missed"


async def kill_and_wait(tocsin: Tocsin, name: str) -> None:
    """SIGKILL, and the child is back with its old address."""
    address = tocsin.processes()[name]["metrics_url"]
    killed = tocsin.send(name, signal.SIGKILL)

    async def back() -> bool:
        process = tocsin.processes().get(name)
        return process is not None and process["pid"] != killed

    await eventually(f"{name} is back", back, within=60)
    assert tocsin.processes()[name]["metrics_url"] == address

    async def ready() -> bool:
        return (await tocsin.client.get("/readyz")).status_code == 200

    await eventually(f"ready after the kill of {name}", ready, within=60)


class Books:
    """Slots that were due in ``(begun, ended]`` against the results that the API shows."""

    def __init__(self, monitors: list[dict[str, Any]], begun_ms: int, ended_ms: int) -> None:
        self._due: dict[str, list[int]] = {}
        for monitor in monitors:
            start = to_milliseconds(datetime.fromisoformat(monitor["created_at"]))
            cadence = Cadence(UUID(monitor["id"]), monitor["interval_seconds"] * 1000, start)
            self._due[monitor["id"]] = list(slots_between(cadence, begun_ms, ended_ms))
        self.unaccounted: list[tuple[str, int]] = []
        self.doubled: list[tuple[str, int]] = []
        self.missed: list[tuple[str, int, Any]] = []

    async def read(self, tocsin: Tocsin) -> None:
        self.unaccounted, self.doubled, self.missed = [], [], []
        for monitor_id, due in self._due.items():
            results = await tocsin.results(monitor_id)
            found = Counter(to_milliseconds(datetime.fromisoformat(item["scheduled_at"])) for item in results)
            self.unaccounted += [(monitor_id, slot) for slot in due if slot not in found]
            self.doubled += [(monitor_id, slot) for slot, times in found.items() if times > 1]
            self.missed += [
                (monitor_id, item["scheduled_at"], item["error"]) for item in results if item["status"] == "missed"
            ]
