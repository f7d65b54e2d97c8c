"""Metrics, the OpenAPI document, and what a fault of ours looks like."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI

from shared.observability import metrics
from tests.integration.api.conftest import Tenant


async def test_metrics_are_served(anonymous: Any) -> None:
    metrics.results_stored.inc(0)
    response = await anonymous.get("/metrics")
    assert response.status_code == 200
    assert "tocsin_results_stored_total" in response.text


async def test_the_documentation_works_without_the_internet(anonymous: Any) -> None:
    page = (await anonymous.get("/docs")).text
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert files
    assert all(file.startswith("/") for file in files)
    assert [(await anonymous.get(file)).status_code for file in files] == [200] * len(files)


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
            assert list(operation["responses"]["401"]["content"]) == ["application/problem+json"], (method, path)
    assert len({operation["operationId"] for _, _, operation in operations}) == len(operations)
    assert document["components"]["schemas"]["MonitorSpec"]["additionalProperties"] is False


async def test_a_fault_of_ours_is_a_problem_without_a_stack_trace(app: FastAPI, alice: Tenant) -> None:
    app.state.context = None
    response = await alice.client.get("/v1/monitors")
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "Traceback" not in response.text
    assert "assert" not in response.text
