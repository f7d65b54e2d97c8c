"""Looking healthy is not being healthy: what stops working turns its probe and its metric, all being connected."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.testing.tocsin import Tocsin, eventually
from tests.acceptance.targets import Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


# Seconds. How soon each of them is seen is measured by the chaos suite.
PATIENCE = 150.0


@pytest.fixture
async def tocsin(tmp_path: Path) -> AsyncIterator[Tocsin]:
    async with Target() as target, Tocsin(tmp_path / "data") as running:
        url = f"http://127.0.0.1:{target.port}/"
        for index in range(5):
            await running.create_monitor(name=f"m{index}", interval_seconds=5, check={"kind": "http", "url": url})
        yield running


@contextlib.contextmanager
def frozen(tocsin: Tocsin, *names: str) -> Iterator[None]:
    """Stop processes in their tracks, children included; their connections stay open."""
    pids = [pid for name in names for pid in family(tocsin.processes()[name]["pid"])]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


async def alarm(tocsin: Tocsin, part: str, *, rings: bool) -> None:
    """The metric on the API that says whether a part of the work is being done."""
    line = f'tocsin_watchdog_alarm{{part="{part}"}} {float(rings)}'

    async def said() -> bool:
        return line in (await tocsin.client.get("/metrics")).text

    await eventually(line, said, within=PATIENCE, every=0.5)


async def probe(tocsin: Tocsin, name: str, part: str, *, content: bool) -> None:
    """The readiness of one process, by the name of the part that is not working."""
    address = tocsin.processes()[name]["metrics_url"].replace("/metrics", "/readyz")

    async def turned() -> Any:
        async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
            answer = await client.get(address)
        checks = answer.json()["checks"]
        return answer.status_code == (200 if content else 503) and (checks[part] == "ok") is content and checks

    await eventually(f"{name} {part} content={content}", turned, within=PATIENCE, every=0.5)


async def test_schedulers_that_stand_still_are_told_by_the_api(tocsin: Tocsin) -> None:
    await alarm(tocsin, "dispatch", rings=False)
    with frozen(tocsin, "scheduler-1", "scheduler-2"):
        await alarm(tocsin, "dispatch", rings=True)
    await alarm(tocsin, "dispatch", rings=False)


async def test_a_worker_that_takes_nothing_is_told_by_the_api(tocsin: Tocsin) -> None:
    await alarm(tocsin, "workers", rings=False)
    with frozen(tocsin, "worker-1"):
        await alarm(tocsin, "workers", rings=True)
    await alarm(tocsin, "workers", rings=False)


async def test_a_worker_that_can_not_store_turns_unready_and_recovers(tocsin: Tocsin) -> None:
    await probe(tocsin, "worker-1", "recorder", content=True)
    with frozen(tocsin, "postgres"):
        await probe(tocsin, "worker-1", "recorder", content=False)
    await probe(tocsin, "worker-1", "recorder", content=True)


async def test_a_queue_that_is_silent_turns_workers_and_schedulers_unready(tocsin: Tocsin) -> None:
    await probe(tocsin, "worker-1", "checks", content=True)
    ready_file = tocsin.data / "run" / "worker-1.ready"
    assert ready_file.exists()
    with frozen(tocsin, "nats"):
        await probe(tocsin, "worker-1", "checks", content=False)
        await probe(tocsin, "scheduler-1", "role", content=False)
        assert not ready_file.exists()
    await probe(tocsin, "worker-1", "checks", content=True)
    await probe(tocsin, "scheduler-1", "role", content=True)
