"""Monitors of kind ``http_steps`` over REST: stored sealed, read masked, changed without giving secrets again."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from api.v1.checks.schemas import STEPS_EXAMPLE
from shared.contracts.documents import detail_of, encode
from shared.db.session import Database
from shared.domain.result import CheckVerdict, HttpFacts, ResultStatus, StepResult
from tests.integration.api.conftest import PlayedDesk, Tenant, monitor
from tests.integration.api.test_checks import row, store

CHECK: dict[str, Any] = {**STEPS_EXAMPLE, "secrets": {"password": "hunter2-hunter2"}}
MASK = "********"


async def test_the_example_is_stored_and_read_back_without_its_secrets(alice: Tenant) -> None:
    created = await alice.add_monitor(check=CHECK)
    read = (await alice.client.get(f"/v1/monitors/{created['id']}")).json()
    assert read["check"]["secrets"] == {"password": MASK}
    assert "hunter2" not in json.dumps(read)
    listed = (await alice.client.get("/v1/monitors", params={"kind": "http_steps"})).json()
    assert [each["id"] for each in listed["items"]] == [created["id"]]


async def test_masks_written_back_in_another_order_keep_the_secrets(alice: Tenant, desk: PlayedDesk) -> None:
    check = copy.deepcopy(CHECK)
    check["steps"][0]["headers"] = {"X-Api-Key": "s3cr3t-s3cr3t"}
    created = await alice.add_monitor(check=check)
    changed = created["check"]
    changed["steps"].insert(0, {"name": "knock", "url": "https://shop.example/"})
    response = await alice.client.patch(f"/v1/monitors/{created['id']}", json={"check": changed})
    assert response.status_code == 200, response.text
    assert (await alice.client.post(f"/v1/monitors/{created['id']}/check")).status_code == 200
    (request,) = desk.requests
    assert set(request.run.check["steps"][1]["headers"]["X-Api-Key"]) == {"$sealed"}


async def test_a_mask_in_a_renamed_step_is_refused_at_its_place(alice: Tenant) -> None:
    check = copy.deepcopy(CHECK)
    check["steps"][0]["headers"] = {"X-Api-Key": MASK}
    response = await alice.client.post("/v1/monitors", json=monitor(check=check))
    assert response.status_code == 422
    assert [each["field"] for each in response.json()["errors"]] == ["check.steps.0.headers.X-Api-Key"]


@pytest.mark.parametrize("number", [20, 21])
async def test_twenty_steps_are_taken_and_one_more_is_not(alice: Tenant, number: int) -> None:
    steps = [{"name": str(each), "url": "https://shop.example/"} for each in range(number)]
    response = await alice.client.post("/v1/checks", json={"check": {"kind": "http_steps", "steps": steps}})
    assert response.status_code == (200 if number == 20 else 422), response.text
    if number == 21:
        assert [each["field"] for each in response.json()["errors"]] == ["check.steps"]


async def test_the_steps_of_a_stored_result_are_read_back(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor(check=CHECK)
    steps = (
        StepResult("log in", ResultStatus.UP, http=HttpFacts(201, "1.1"), attempts=1, extracted={"token": "***"}),
        StepResult("order", skipped=True),
    )
    detail = encode(detail_of(CheckVerdict(ResultStatus.DOWN, steps=steps)))
    await store(database, row(created["id"], 0, detail=detail))
    (read,) = (await alice.client.get(f"/v1/monitors/{created['id']}/results")).json()["items"]
    assert [(each["name"], each["status"], each["skipped"]) for each in read["steps"]] == [
        ("log in", "up", False),
        ("order", None, True),
    ]
    assert read["steps"][0]["extracted"] == {"token": "***"}


async def test_an_unknown_variable_is_refused_by_name(alice: Tenant) -> None:
    check = {"kind": "http_steps", "steps": [{"name": "one", "url": "https://shop.example/{{order}}"}]}
    response = await alice.client.post("/v1/checks", json={"check": check})
    assert response.status_code == 422
    assert "{{order}} is neither given nor extracted" in response.text
