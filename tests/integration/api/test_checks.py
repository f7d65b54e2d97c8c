"""Checks that somebody waits for, and the results that are kept."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI

from api.context import Context
from api.run_limit import RunLimit
from shared.contracts.documents import detail_of, encode
from shared.contracts.wire import RunNow, RunNowAnswer
from shared.db.repositories.results import ResultRow, ensure_partitions, store_results
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from shared.domain.result import CheckVerdict, HttpFacts, ResultStatus, Timings
from shared.services.errors import NoWorkerError, RunTimeoutError
from tests.integration.api.conftest import PlayedDesk, Tenant

START_MS = SystemClock().now_ms() // 1000 * 1000 - 3_600_000
PREVIEW = {
    "check": {"kind": "http", "url": "https://shop.example/", "auth": {"kind": "bearer", "token": "hunter2"}}
}


async def test_run_now_asks_a_worker_for_the_stored_check(alice: Tenant, desk: PlayedDesk) -> None:
    created = await alice.add_monitor(regions=["eu", "us"], retries=2, check=PREVIEW["check"])
    response = await alice.client.post(f"/v1/monitors/{created['id']}/check")
    assert response.status_code == 200, response.text
    result = response.json()
    assert (result["status"], result["trigger"], result["region"]) == ("up", "manual", "eu")
    assert result["monitor_id"] == created["id"]
    assert result["http"]["status_code"] == 200
    assert result["scheduled_at"] == "2023-11-14T22:13:20Z"
    (request,) = desk.requests
    assert (request.monitor_id, request.revision, request.store) == (UUID(created["id"]), 1, True)
    assert request.run.retries == 2
    assert set(request.run.check["auth"]["token"]) == {"$sealed"}

    other = await alice.client.post(f"/v1/monitors/{created['id']}/check", params={"region": "us"})
    assert other.json()["region"] == "us"
    wrong = await alice.client.post(f"/v1/monitors/{created['id']}/check", params={"region": "asia"})
    assert wrong.status_code == 422


async def test_a_preview_stores_nothing(alice: Tenant, desk: PlayedDesk) -> None:
    response = await alice.client.post("/v1/checks", json={**PREVIEW, "timeout_seconds": 5})
    assert response.status_code == 200, response.text
    assert response.json()["monitor_id"] is None
    (request,) = desk.requests
    assert (request.monitor_id, request.store, request.run.timeout_seconds) == (None, False, 5.0)
    assert "hunter2" not in str(request.run.check)
    assert (await alice.client.get("/v1/monitors")).json()["items"] == []


async def test_a_heartbeat_has_nothing_to_run(alice: Tenant) -> None:
    preview = {"check": {"kind": "heartbeat", "period_seconds": 60}}
    refused = await alice.client.post("/v1/checks", json=preview)
    assert refused.status_code == 422
    assert "reports by itself" in refused.text


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(NoWorkerError("nobody in 'default'"), 503, "no_worker"), (RunTimeoutError("late"), 504, "run_timeout")],
)
async def test_a_check_that_cannot_be_run_says_why(
    error: Exception, status: int, code: str, alice: Tenant, desk: PlayedDesk
) -> None:
    desk.error = error
    response = await alice.client.post("/v1/checks", json=PREVIEW)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.json()["detail"] == str(error)


async def test_checks_on_demand_are_bounded_per_organisation(
    app: FastAPI, context: Context, alice: Tenant, bob: Tenant
) -> None:
    taken, release = asyncio.Event(), asyncio.Event()

    class SlowDesk(PlayedDesk):
        async def run(self, request: RunNow) -> RunNowAnswer:
            taken.set()
            await release.wait()
            return await super().run(request)

    app.state.context = Context(context.database, context.sealer, context.clock, SlowDesk(), runs=RunLimit(limit=1))
    first = asyncio.create_task(alice.client.post("/v1/checks", json=PREVIEW))
    await asyncio.wait_for(taken.wait(), 60)
    second = await alice.client.post("/v1/checks", json=PREVIEW)
    assert (second.status_code, second.json()["code"]) == (429, "too_many_runs")
    assert second.headers["Retry-After"]
    other = asyncio.create_task(bob.client.post("/v1/checks", json=PREVIEW))
    release.set()
    assert (await first).status_code == (await other).status_code == 200


def row(monitor_id: str, minute: int, region: str = "default", **fields: Any) -> ResultRow:
    verdict = CheckVerdict(ResultStatus.UP, timings_ms=Timings(total=3.5), http=HttpFacts(status_code=200))
    at = to_datetime(START_MS + minute * 60_000)
    values: dict[str, Any] = {
        "started_at": at,
        "revision": 1,
        "status": "up",
        "attempts": 1,
        "error_kind": None,
        "error_message": None,
        "total_ms": 3.5,
        "trigger": "schedule",
        "detail": encode(detail_of(verdict)),
    }
    return ResultRow(monitor_id=UUID(monitor_id), region=region, scheduled_at=at, **{**values, **fields})


async def store(database: Database, *rows: ResultRow) -> None:
    async with database.system() as session:
        await ensure_partitions(session, {row.scheduled_at.date() for row in rows})
        await store_results(session, rows)


async def test_results_read_as_the_contract_says(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor()
    missed = row(
        created["id"], 1, status="missed", started_at=None, error_kind="worker_gap", error_message="no worker"
    )
    await store(database, row(created["id"], 0), missed)
    newest, oldest = (await alice.client.get(f"/v1/monitors/{created['id']}/results")).json()["items"]
    assert newest["status"] == "missed"
    assert newest["error"] == {"kind": "worker_gap", "message": "no worker"}
    assert newest["started_at"] is None
    assert oldest["timings_ms"]["total"] == 3.5
    assert oldest["http"]["status_code"] == 200
    assert oldest["error"] is None
    assert oldest["tls"] is None
    assert oldest["assertions"] == []


async def test_result_pages_hold_still_while_results_arrive(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor(regions=["eu", "us"])
    path = f"/v1/monitors/{created['id']}/results"
    stored = [row(created["id"], minute, region) for minute in range(5) for region in ("eu", "us")]
    await store(database, *stored)
    expected = [(r.scheduled_at, r.region) for r in reversed(stored)]
    seen, cursor = [], None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        body = (await alice.client.get(path, params=query)).json()
        seen += [(item["scheduled_at"], item["region"]) for item in body["items"]]
        await store(database, row(created["id"], 10 + len(seen), "eu"))
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert seen == [(at.isoformat().replace("+00:00", "Z"), region) for at, region in expected]


async def test_results_are_cut_to_a_span(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor()
    await store(database, *(row(created["id"], minute) for minute in range(5)))
    since = to_datetime(START_MS) + timedelta(minutes=1)
    query = {"since": since.isoformat(), "until": (since + timedelta(minutes=2)).isoformat()}
    items = (await alice.client.get(f"/v1/monitors/{created['id']}/results", params=query)).json()["items"]
    assert [item["scheduled_at"] for item in items] == [
        (since + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z") for minute in (1, 0)
    ]
