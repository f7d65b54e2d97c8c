"""Alert policies over the API, and whether they would reach anybody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from shared.db.session import Database
from tests.integration.api.conftest import Tenant

SLACK = {"name": "ops", "kind": "slack", "config": {"url": "https://slack.example/hook"}}
POLICIES = "/v1/alert-policies"


async def add_channel(tenant: Tenant, **fields: Any) -> str:
    answer = await tenant.client.post("/v1/channels", json={**SLACK, **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_a_policy_is_created_read_changed_and_deleted(alice: Tenant) -> None:
    channel = await add_channel(alice)
    quiet = {"timezone": "Europe/Berlin", "from": "22:00", "to": "07:00", "days": ["mon"]}
    body = {
        "name": "night",
        "match": {"tags": {"team": "shop"}},
        "steps": [{"quiet_hours": quiet}, {"delay_seconds": 300, "channels": [channel]}],
    }
    answer = await alice.client.post(POLICIES, json=body)
    assert answer.status_code == 201, answer.text
    created = answer.json()
    path = f"{POLICIES}/{created['id']}"
    assert answer.headers["Location"] == path
    assert created["steps"][0]["quiet_hours"] == {**quiet, "from": "22:00:00", "to": "07:00:00"}
    assert (created["working"], created["problems"], created["repeat"]) == (True, [], 0)
    changed = (await alice.client.patch(path, json={"reminder_seconds": 600, "match": None})).json()
    assert (changed["reminder_seconds"], changed["match"]["tags"]) == (600, {})
    assert changed["steps"] == created["steps"]
    assert (await alice.client.get(path)).json() == changed
    refused = await alice.client.patch(path, json={"steps": [{"delay_seconds": -1}]})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "steps.0.delay_seconds")
    assert (await alice.client.delete(path)).status_code == 204
    assert (await alice.client.get(path)).status_code == 404


async def test_policies_are_listed_in_the_order_in_which_they_are_asked(alice: Tenant) -> None:
    for name, priority in (("last", 500), ("first", 0), ("second", 100), ("third", 100)):
        await alice.client.post(POLICIES, json={"name": name, "priority": priority})
    names, cursor = [], None
    while True:
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        page = (await alice.client.get(POLICIES, params=query)).json()
        names += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == ["first", "second", "third", "last"]
    for forged in ("x", "AAAA", "é"):
        assert (await alice.client.get(POLICIES, params={"cursor": forged})).status_code == 422


async def test_a_policy_that_reaches_nobody_says_so(alice: Tenant, database: Database) -> None:
    default = (await alice.client.get(f"{POLICIES}/default")).json()
    assert (default["working"], default["problems"]) == (False, ["step 1 has no channel: nobody is told"])
    channel = await add_channel(alice, default=False)
    policy = (await alice.client.post(POLICIES, json={"name": "p", "steps": [{"channels": [channel]}]})).json()
    assert policy["working"] is True
    async with database.system() as session:
        await session.execute(text("UPDATE channels SET failing_since = '2026-01-02 03:04Z'"))
    failing = (await alice.client.get(f"{POLICIES}/{policy['id']}")).json()
    assert failing["working"] is False
    assert failing["problems"] == ["channel 'ops' fails since 2026-01-02 03:04 UTC"]
    await alice.client.delete(f"/v1/channels/{channel}")
    gone = (await alice.client.get(f"{POLICIES}/{policy['id']}")).json()
    assert (gone["working"], gone["problems"]) == (False, ["step 1 has no channel: nobody is told"])
    await add_channel(alice, name="fresh")
    instead = (await alice.client.get(f"{POLICIES}/{policy['id']}")).json()
    assert (instead["working"], instead["problems"]) == (
        True,
        ["step 1 has no channel: the default channels are told instead"],
    )
    assert (await alice.client.get(f"{POLICIES}/default")).json()["working"] is True
