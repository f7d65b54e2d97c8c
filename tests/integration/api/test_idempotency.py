"""A POST that is sent twice with one Idempotency-Key is done once."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from shared.db.session import Database
from shared.services.errors import NoWorkerError
from tests.integration.api.conftest import PlayedDesk, Tenant, monitor

KEY = {"Idempotency-Key": "3f1c"}


async def test_a_repeated_request_gets_the_first_answer(alice: Tenant) -> None:
    first = await alice.client.post("/v1/monitors", json=monitor(), headers=KEY)
    again = await alice.client.post("/v1/monitors", json=monitor(), headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert len((await alice.client.get("/v1/monitors")).json()["items"]) == 1


async def test_requests_at_the_same_moment_create_one_monitor(alice: Tenant) -> None:
    answers = await asyncio.gather(
        *(alice.client.post("/v1/monitors", json=monitor(), headers=KEY) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_the_key_of_another_request_is_refused(alice: Tenant) -> None:
    await alice.client.post("/v1/monitors", json=monitor(), headers=KEY)
    other_body = await alice.client.post("/v1/monitors", json=monitor(name="Other"), headers=KEY)
    other_path = await alice.client.post("/v1/checks", json={"check": monitor()["check"]}, headers=KEY)
    for response in (other_body, other_path):
        assert (response.status_code, response.json()["code"]) == (409, "idempotency_conflict")


async def test_a_refused_request_does_not_use_up_its_key(alice: Tenant) -> None:
    assert (await alice.client.post("/v1/monitors", json=monitor(retries=9), headers=KEY)).status_code == 422
    assert (await alice.client.post("/v1/monitors", json=monitor(), headers=KEY)).status_code == 201


async def test_a_check_on_demand_runs_once_and_again_only_after_a_failure(alice: Tenant, desk: PlayedDesk) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}/check"
    desk.error = NoWorkerError("nobody is there")
    assert (await alice.client.post(path, headers=KEY)).status_code == 503
    desk.error = None
    first = await alice.client.post(path, headers=KEY)
    again = await alice.client.post(path, headers=KEY)
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert len(desk.requests) == 2


async def test_an_answer_that_holds_a_key_is_stored_encrypted(alice: Tenant, database: Database) -> None:
    wanted = {"name": "CI", "scopes": ["read"]}
    first = await alice.client.post("/v1/api-keys", json=wanted, headers=KEY)
    again = await alice.client.post("/v1/api-keys", json=wanted, headers=KEY)
    assert again.json()["key"] == first.json()["key"]
    async with database.system() as session:
        body = await session.scalar(text("SELECT body FROM idempotency_keys"))
    assert body is not None
    assert first.json()["key"].encode() not in body


async def test_a_key_that_is_no_key_is_refused(alice: Tenant) -> None:
    for key in ("", "a b", "x" * 256):
        response = await alice.client.post("/v1/monitors", json=monitor(), headers={"Idempotency-Key": key})
        assert response.status_code == 422, key
