"""``/v1/incidents``: read, acknowledge, resolve, comment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from shared.db.base import new_id
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.services.api_keys import Scope
from tests.integration.api.conftest import Tenant, add_key
from tests.integration.path.scene import Scene


class Now(SystemClock):
    """The clock of the API, which the scene moves on a little with each result."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def advance(self, seconds: float) -> None:
        self._ahead_ms += round(seconds)


@pytest.fixture
def scene(alice: Tenant, database: Database) -> Scene:
    return Scene(database, alice.organisation_id, Now())  # type: ignore[arg-type]  # a clock that passes by itself


async def incident(tenant: Tenant, **query: Any) -> dict[str, Any]:
    """The one incident of a list, in full."""
    (item,) = (await tenant.client.get("/v1/incidents", params=query)).json()["items"]
    answer = await tenant.client.get(f"/v1/incidents/{item['id']}")
    assert answer.status_code == 200, answer.text
    detail: dict[str, Any] = answer.json()
    assert detail.items() >= item.items()
    return detail


async def failing(scene: Scene, tenant: Tenant, **fields: Any) -> UUID:
    monitor_id = UUID((await tenant.add_monitor(interval_seconds=5, **fields))["id"])
    await scene.say(monitor_id, "SF")
    return monitor_id


async def test_an_incident_is_read_with_its_evidence_and_timeline(scene: Scene, alice: Tenant) -> None:
    monitor_id = await failing(scene, alice, name="Shop")
    found = await incident(alice, state="open", monitor_id=str(monitor_id))
    assert (found["monitor_name"], found["cause"], found["severity"]) == ("Shop", "connect_refused", "down")
    assert found["first_result"]["error"]["message"] == "nothing listens"
    (opened,) = found["timeline"]
    assert (opened["kind"], opened["told"], opened["detail"]["cause"]) == ("opened", True, "connect_refused")
    await scene.say(monitor_id, "S")
    found = await incident(alice, state="resolved")
    assert [event["kind"] for event in found["timeline"]] == ["opened", "resolved"]
    assert found["resolved_by"] is None


async def test_lists_are_filtered_and_come_in_pages_newest_first(scene: Scene, alice: Tenant, bob: Tenant) -> None:
    monitor_ids = [await failing(scene, alice) for _ in range(3)]
    page = (await alice.client.get("/v1/incidents", params={"limit": 2})).json()
    assert [item["monitor_id"] for item in page["items"]] == [str(each) for each in reversed(monitor_ids[1:])]
    rest = await alice.client.get("/v1/incidents", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [item["monitor_id"] for item in rest.json()["items"]] == [str(monitor_ids[0])]
    assert (await alice.client.get("/v1/incidents", params={"state": "resolved"})).json()["items"] == []
    assert (await bob.client.get("/v1/incidents")).json()["items"] == []
    for query in ({"state": "closed"}, {"monitor_id": "x"}, {"cursor": "!"}, {"unknown": 1}):
        assert (await alice.client.get("/v1/incidents", params=query)).status_code == 422


async def test_acknowledging_is_told_once_and_says_who(scene: Scene, alice: Tenant) -> None:
    await failing(scene, alice)
    path = f"/v1/incidents/{(await incident(alice))['id']}"
    for _ in range(2):
        answer = await alice.client.post(f"{path}/acknowledge")
        assert (answer.status_code, answer.json()["state"]) == (200, "acknowledged")
        assert answer.json()["acknowledged_by"] == "API key test"
    assert await scene.told() == ["opened", "acknowledged"]


async def test_an_incident_resolved_by_hand_stays_closed_until_the_monitor_was_well(
    scene: Scene, alice: Tenant
) -> None:
    monitor_id = await failing(scene, alice, flap_window_seconds=600)
    path = f"/v1/incidents/{(await incident(alice))['id']}"
    answer = await alice.client.post(f"{path}/resolve", json={"note": "known, see #5"})
    assert (answer.status_code, answer.json()["resolved_by"]) == (200, "API key test")
    assert answer.json()["timeline"][-1]["detail"] == {"note": "known, see #5"}
    for action in ("resolve", "acknowledge"):
        refused = await alice.client.post(f"{path}/{action}")
        assert (refused.status_code, refused.json()["code"]) == (409, "incident_resolved")
    await scene.say(monitor_id, "FFF")
    assert await scene.told() == ["opened", "resolved"]
    await scene.say(monitor_id, "S")
    assert await scene.told() == []
    await scene.say(monitor_id, "F")
    assert await scene.told() == ["opened"]
    assert len((await alice.client.get("/v1/incidents")).json()["items"]) == 2


async def test_comments_go_to_the_timeline_and_to_nobody(scene: Scene, alice: Tenant) -> None:
    await failing(scene, alice)
    path = f"/v1/incidents/{(await incident(alice))['id']}/comments"
    headers = {"Idempotency-Key": "c1"}
    once, again = [
        await alice.client.post(path, json={"text": "a switch burns"}, headers=headers) for _ in range(2)
    ]
    assert (once.status_code, again.status_code, again.json()) == (201, 201, once.json())
    comments = [event for event in (await incident(alice))["timeline"] if event["kind"] == "comment"]
    assert [(event["actor"], event["detail"], event["told"]) for event in comments] == [
        ("API key test", {"text": "a switch burns"}, False)
    ]
    assert await scene.told() == ["opened"]
    for body in ({}, {"text": ""}, {"text": "\0"}, {"text": "x" * 5001}, {"text": "x", "more": 1}):
        assert (await alice.client.post(path, json=body)).status_code == 422


async def test_what_a_parent_explains_is_listed_on_its_incident(scene: Scene, alice: Tenant) -> None:
    parent = await failing(scene, alice, name="Router")
    child = await failing(scene, alice, name="Shop", parents=[str(parent)])
    await scene.sweep()
    found = await incident(alice, monitor_id=str(parent))
    assert [(row["monitor_name"], row["state"]) for row in found["affected"]] == [("Shop", "open")]
    explained = await incident(alice, monitor_id=str(child))
    assert (explained["affected_by"], explained["silent"]) == (found["id"], True)


async def test_a_key_that_may_only_read_changes_nothing(
    scene: Scene, alice: Tenant, database: Database, anonymous: Any
) -> None:
    await failing(scene, alice)
    path = f"/v1/incidents/{(await incident(alice))['id']}"
    headers = {"Authorization": f"Bearer {await add_key(database, alice.organisation_id, Scope.READ)}"}
    assert (await anonymous.get(path, headers=headers)).status_code == 200
    for action, body in (("acknowledge", None), ("resolve", None), ("comments", {"text": "x"})):
        assert (await anonymous.post(f"{path}/{action}", json=body, headers=headers)).status_code == 403
    assert (await alice.client.get(f"/v1/incidents/{new_id()}")).status_code == 404


async def test_statuses_of_monitors_are_read_and_filtered_as_they_are_shown(scene: Scene, alice: Tenant) -> None:
    monitor_id = await failing(scene, alice)
    await scene.maintain(0, 100)
    await scene.reconsider(monitor_id)
    path = f"/v1/monitors/{monitor_id}"
    assert (await alice.client.get(path)).json()["status"] == "maintenance"
    await alice.client.post(f"{path}/pause")
    assert (await alice.client.get(path)).json()["status"] == "paused"
    for status, expected in (("paused", 1), ("maintenance", 0), ("down", 0)):
        items = (await alice.client.get("/v1/monitors", params={"status": status})).json()["items"]
        assert len(items) == expected
    resumed = (await alice.client.post(f"{path}/resume")).json()
    assert resumed["status"] == "maintenance"


async def test_rules_of_a_monitor_are_validated(alice: Tenant) -> None:
    created = await alice.add_monitor(regions=["a", "b"], region_quorum=2, flap_window_seconds=0)
    assert (created["region_quorum"], created["flap_window_seconds"], created["parents"]) == (2, 0, [])
    path = f"/v1/monitors/{created['id']}"
    for patch, field in (
        ({"region_quorum": 3}, "region_quorum"),
        ({"parents": [created["id"]]}, "parents"),
        ({"parents": [str(new_id())]}, "parents"),
        ({"flap_window_seconds": -1}, "flap_window_seconds"),
    ):
        refused = await alice.client.patch(path, json=patch)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
