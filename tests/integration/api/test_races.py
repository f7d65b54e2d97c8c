"""Requests at the same moment: none fails for a reason that its sender cannot know, and no change is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from shared.contracts.sealing import Sealer
from shared.db.repositories import channels, idempotency
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.services.errors import IdempotencyConflictError
from shared.services.idempotency import Answers, Claim
from tests.integration.alerting.conftest import eventually
from tests.integration.api.conftest import SECRET_KEY, Tenant, monitor

_WAITING = text("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")


def channel(**fields: Any) -> dict[str, Any]:
    return {"name": "ops", "kind": "slack", "config": {"url": "https://ops.example/hook"}, **fields}


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


async def somebody_waits(database: Database) -> bool:
    async with database.system() as session:
        return bool(await session.scalar(_WAITING))


NAMING: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "fallback of a new channel": ("POST", "/v1/channels", lambda gone: channel(fallback_channel_id=gone)),
    "fallback of a changed channel": ("PATCH", "/v1/channels/{id}", lambda gone: {"fallback_channel_id": gone}),
    "step of a new policy": (
        "POST",
        "/v1/alert-policies",
        lambda gone: {"name": "p", "steps": [{"channels": [gone]}]},
    ),
}


@pytest.mark.parametrize("case", NAMING)
async def test_what_is_deleted_meanwhile_is_not_there(case: str, alice: Tenant, database: Database) -> None:
    method, path, body = NAMING[case]
    gone, other = [(await alice.client.post("/v1/channels", json=channel())).json()["id"] for _ in range(2)]
    async with database.tenant(alice.organisation_id) as session:
        await channels.remove(session, UUID(gone))
        naming = asyncio.create_task(alice.client.request(method, path.format(id=other), json=body(gone)))
        await eventually(lambda: somebody_waits(database))
    answer = await naming
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text


async def test_channels_may_take_each_other_as_fallback_at_once(alice: Tenant) -> None:
    pair = [(await alice.client.post("/v1/channels", json=channel())).json()["id"] for _ in range(2)]
    changes: list[Awaitable[httpx.Response]] = [
        alice.client.patch(f"/v1/channels/{one}", json={"fallback_channel_id": other})
        for one, other in (pair, pair[::-1]) * 10
    ]
    assert statuses(await asyncio.gather(*changes)) == {200: 20}


async def test_changes_of_different_fields_are_all_kept(alice: Tenant) -> None:
    path = f"/v1/monitors/{(await alice.add_monitor())['id']}"
    wanted = {"retries": 3, "failure_threshold": 4, "recovery_threshold": 5, "name": "Last", "tags": {"a": "b"}}
    answers = await asyncio.gather(
        *(alice.client.patch(path, json={name: value}) for name, value in wanted.items() for _ in range(10))
    )
    assert statuses(answers) == {200: 50}
    read = (await alice.client.get(path)).json()
    assert {name: read[name] for name in wanted} == wanted


async def test_of_changes_to_one_revision_one_is_made(alice: Tenant) -> None:
    path = f"/v1/monitors/{(await alice.add_monitor())['id']}"
    changes = [{"name": f"Name {number}"} for number in range(50)]
    answers = await asyncio.gather(
        *(alice.client.patch(path, json=change, headers={"If-Match": '"1"'}) for change in changes)
    )
    assert statuses(answers) == {200: 1, 412: 49}
    assert (await alice.client.get(path)).json()["revision"] == 2


async def test_a_monitor_is_deleted_while_it_is_changed(alice: Tenant) -> None:
    path = f"/v1/monitors/{(await alice.add_monitor())['id']}"
    calls = [
        call
        for number in range(10)
        for call in (
            alice.client.patch(path, json={"retries": number % 5}),
            alice.client.post(f"{path}/pause"),
            alice.client.post(f"{path}/resume"),
            alice.client.delete(path),
        )
    ]
    found = statuses(await asyncio.gather(*calls))
    assert found[204] == 1
    assert found.keys() <= {200, 204, 404}


async def test_monitors_do_not_become_parents_of_each_other(alice: Tenant) -> None:
    one, other = [(await alice.client.post("/v1/monitors", json=monitor())).json()["id"] for _ in range(2)]
    answers = await asyncio.gather(
        *(
            alice.client.patch(f"/v1/monitors/{child}", json={"parents": [parent]})
            for child, parent in ((one, other), (other, one)) * 5
        )
    )
    assert statuses(answers).keys() == {200, 422}


async def test_a_key_that_is_given_back_meanwhile_is_a_conflict(
    alice: Tenant, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between "somebody has it" and reading the answer, the other request fails and gives the key back."""
    claim = Claim(alice.organisation_id, "key", b"hash")
    answers = Answers(Sealer([SECRET_KEY]), SystemClock())

    async def taken(*_: object) -> bool:
        return False

    monkeypatch.setattr(idempotency, "claim", taken)
    async with database.tenant(alice.organisation_id) as session:
        with pytest.raises(IdempotencyConflictError, match="send it again"):
            await answers.claim(session, claim)
