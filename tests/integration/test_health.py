"""The health server over a real socket, and what makes a scheduler ask for its own restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from monitoring_scheduler.main import Scheduler
from monitoring_scheduler.settings import SchedulerSettings
from shared.observability.health import Health, HealthServer
from shared.settings import load
from shared.testing.nats import free_port

STALLED = "nothing was planned for 60 s"


@asynccontextmanager
async def asking(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    ("ready", "live", "expected"),
    [
        pytest.param(None, None, {"/readyz": 200, "/livez": 200}, id="well"),
        pytest.param(STALLED, None, {"/readyz": 503, "/livez": 200}, id="not ready is no reason for a restart"),
        pytest.param(STALLED, STALLED, {"/readyz": 503, "/livez": 503}, id="stalled"),
    ],
)
async def test_each_question_is_answered_by_its_own_probes(
    ready: str | None, live: str | None, expected: dict[str, int]
) -> None:
    server = HealthServer(Health({"beat": lambda: ready}, live={"beat": lambda: live}), "127.0.0.1", 0)
    await server.start()
    async with asking(server.port) as client:
        answers = {path: await client.get(path) for path in expected}
        assert {path: answer.status_code for path, answer in answers.items()} == expected
        assert answers["/readyz"].json()["checks"] == {"beat": ready or "ok"}
        assert "tocsin_" in (await client.get("/metrics")).text
        assert (await client.get("/other")).status_code == HTTPStatus.NOT_FOUND
        assert (await client.post("/livez")).status_code == HTTPStatus.METHOD_NOT_ALLOWED
    await server.stop()


async def test_a_scheduler_whose_beat_stands_still_is_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_METRICS_PORT", str(free_port()))
    monkeypatch.setenv("TOCSIN_READY_FILE", str(tmp_path / "ready"))
    settings = load(SchedulerSettings)
    scheduler = Scheduler(settings)
    beat: list[str | None] = [None]
    scheduler._probes["beat"] = lambda: beat[0]
    async with AsyncExitStack() as stack, asking(settings.metrics_port) as client:
        stack.push_async_callback(scheduler._life.end)
        await scheduler._report_health(stack)
        assert (await client.get("/livez")).status_code == HTTPStatus.OK
        beat[0] = STALLED
        answer = await client.get("/livez")
    assert (answer.status_code, answer.json()["checks"]) == (HTTPStatus.SERVICE_UNAVAILABLE, {"beat": STALLED})
