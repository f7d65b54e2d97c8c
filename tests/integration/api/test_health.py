"""Health, metrics, the OpenAPI document, and what a client sees while PostgreSQL is away."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from shared.testing.postgres import PostgresServer
from tests.integration.api.conftest import Tenant


async def test_a_restarted_database_is_used_again_by_the_next_request(
    alice: Tenant, postgres: PostgresServer
) -> None:
    assert (await alice.client.get("/v1/monitors")).status_code == 200
    await postgres.restart()
    assert (await alice.client.get("/v1/monitors")).status_code == 200


async def test_without_a_database_requests_are_answered_and_readiness_names_it(
    alice: Tenant, anonymous: Any, postgres: PostgresServer
) -> None:
    await postgres.stop()
    try:
        response = await alice.client.get("/v1/monitors")
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        assert response.headers["Retry-After"]
        ready = await anonymous.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["checks"] == {"database": "PostgreSQL does not answer", "relay": "ok"}
        assert (await anonymous.get("/livez")).status_code == 200
    finally:
        await postgres.start()
    assert (await alice.client.get("/v1/monitors")).status_code == 200
    assert (await anonymous.get("/readyz")).status_code == 200


async def test_metrics_are_served(anonymous: Any) -> None:
    response = await anonymous.get("/metrics")
    assert response.status_code == 200
    assert "tocsin_results_stored_total" in response.text


async def test_every_operation_is_documented(app: FastAPI, anonymous: Any) -> None:
    document = (await anonymous.get("/openapi.json")).json()
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for path, method, operation in operations:
        assert operation["summary"], (method, path)
        if path.startswith("/v1"):
            assert operation["security"] == [{"ApiKey": []}], (method, path)
            assert "application/problem+json" in operation["responses"]["422"]["content"], (method, path)
    assert len({operation["operationId"] for _, _, operation in operations}) == len(operations)
    assert document["components"]["schemas"]["MonitorSpec"]["additionalProperties"] is False


async def test_a_fault_of_ours_is_a_problem_without_a_stack_trace(app: FastAPI, alice: Tenant) -> None:
    app.state.context = None
    response = await alice.client.get("/v1/monitors")
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "Traceback" not in response.text
    assert "assert" not in response.text
