"""Another tenant's id answers 404 on every route, says nothing more, and changes nothing.

The table is held against the OpenAPI document: a route that is in neither list makes the test fail, so nobody
adds one without deciding how it keeps tenants apart.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from shared.db.base import new_id
from shared.db.session import Database
from shared.services.api_keys import Scope
from tests.integration.api.conftest import PlayedDesk, Tenant, add_key, monitor
from tests.integration.db.tenants import add_certificate, add_incident

Route = tuple[str, str]

WITH_AN_ID: dict[Route, dict[str, Any] | None] = {
    ("GET", "/v1/monitors/{monitor_id}"): None,
    ("PATCH", "/v1/monitors/{monitor_id}"): {"name": "stolen"},
    ("DELETE", "/v1/monitors/{monitor_id}"): None,
    ("POST", "/v1/monitors/{monitor_id}/pause"): None,
    ("POST", "/v1/monitors/{monitor_id}/resume"): None,
    ("POST", "/v1/monitors/{monitor_id}/check"): None,
    ("GET", "/v1/monitors/{monitor_id}/results"): None,
    ("GET", "/v1/monitors/{monitor_id}/certificates"): None,
    ("POST", "/v1/monitors/{monitor_id}/certificates/{fingerprint}/accept"): None,
    ("DELETE", "/v1/api-keys/{key_id}"): None,
    ("GET", "/v1/channels/{channel_id}"): None,
    ("PATCH", "/v1/channels/{channel_id}"): {"name": "stolen"},
    ("DELETE", "/v1/channels/{channel_id}"): None,
    ("POST", "/v1/channels/{channel_id}/test"): None,
    ("GET", "/v1/channels/{channel_id}/deliveries"): None,
    ("GET", "/v1/alert-policies/{policy_id}"): None,
    ("PATCH", "/v1/alert-policies/{policy_id}"): {"name": "stolen"},
    ("DELETE", "/v1/alert-policies/{policy_id}"): None,
    ("GET", "/v1/maintenance-windows/{window_id}"): None,
    ("PATCH", "/v1/maintenance-windows/{window_id}"): {"name": "stolen"},
    ("DELETE", "/v1/maintenance-windows/{window_id}"): None,
    ("GET", "/v1/incidents/{incident_id}"): None,
    ("POST", "/v1/incidents/{incident_id}/acknowledge"): None,
    ("POST", "/v1/incidents/{incident_id}/resolve"): {"note": "stolen"},
    ("POST", "/v1/incidents/{incident_id}/comments"): {"text": "stolen"},
}
OF_THE_OWN_TENANT: set[Route] = {
    ("POST", "/v1/monitors"),
    ("GET", "/v1/monitors"),
    ("POST", "/v1/checks"),
    ("POST", "/v1/api-keys"),
    ("GET", "/v1/api-keys"),
    ("POST", "/v1/channels"),
    ("GET", "/v1/channels"),
    ("POST", "/v1/alert-policies"),
    ("GET", "/v1/alert-policies"),
    ("GET", "/v1/alert-policies/default"),
    ("POST", "/v1/maintenance-windows"),
    ("GET", "/v1/maintenance-windows"),
    ("GET", "/v1/incidents"),
    ("GET", "/v1/organisation"),
    ("PATCH", "/v1/organisation"),
    ("GET", "/v1/members"),
}
# Dead letters lie in NATS: tests/integration/api/test_dead_letters.py shows that they are kept apart. Jobs belong
# to the platform: tests/integration/api/test_jobs.py shows that only its operator sees them.
ELSEWHERE: set[Route] = {
    ("GET", "/v1/dead-letters"),
    ("GET", "/v1/dead-letters/{letter_id}"),
    ("POST", "/v1/dead-letters/{letter_id}/replay"),
    ("DELETE", "/v1/dead-letters/{letter_id}"),
    ("POST", "/v1/dead-letters/purge"),
    ("GET", "/v1/jobs"),
    ("POST", "/v1/jobs/{name}/run"),
}
BAD_AUTHORIZATIONS = (None, "Bearer tcs_wrong", "Basic dXNlcjpwYXNz", "Bearer ", "tcs_x", "Bearer é")
# Of a ping the token is the key.
PINGS: set[Route] = {
    (method, path) for method in ("GET", "POST") for path in ("/ping/{token}", "/ping/{token}/{signal}")
}
PUBLIC: set[Route] = {("GET", "/livez"), ("GET", "/readyz"), ("GET", "/metrics"), *PINGS}
TABLES = (
    "organisations",
    "users",
    "memberships",
    "api_keys",
    "monitors",
    "monitor_state",
    "certificates",
    "schedule_periods",
    "outbox",
    "channels",
    "alert_policies",
    "deliveries",
    "incidents",
    "incident_events",
    "maintenance_windows",
    "maintenance_occurrences",
    "heartbeats",
)


@dataclass(frozen=True)
class Alices:
    """Things of alice that bob knows the ids of."""

    ids: dict[str, str]
    names: tuple[str, ...]


@pytest.fixture
async def alices(alice: Tenant, database: Database) -> Alices:
    created = await alice.add_monitor(name="Alice's shop", tags={"owner": "alice"})
    await add_key(database, alice.organisation_id, Scope.READ)
    key = (await alice.client.get("/v1/api-keys")).json()["items"][-1]
    incident_id = await add_incident(database, alice.organisation_id, UUID(created["id"]))
    ids = {"monitor_id": created["id"], "key_id": key["id"], "incident_id": str(incident_id)}
    ids["fingerprint"] = await add_certificate(database, alice.organisation_id, UUID(created["id"]))
    channel = {"name": "Alice's ops", "kind": "slack", "config": {"url": "https://alice.example/hook"}}
    ids["channel_id"] = (await alice.client.post("/v1/channels", json=channel)).json()["id"]
    ids["policy_id"] = (await alice.client.post("/v1/alert-policies", json={"name": "Alice's"})).json()["id"]
    window = {
        "name": "Alice's upgrade",
        "all": True,
        "starts_at": "2100-01-01T00:00:00Z",
        "ends_at": "2100-01-02T00:00:00Z",
    }
    ids["window_id"] = (await alice.client.post("/v1/maintenance-windows", json=window)).json()["id"]
    return Alices(ids, (created["id"], str(incident_id), "Alice", "alice"))


def routes(app: FastAPI) -> set[Route]:
    paths: dict[str, dict[str, Any]] = app.openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_route_is_in_one_of_the_tables(app: FastAPI) -> None:
    assert routes(app) == WITH_AN_ID.keys() | OF_THE_OWN_TENANT | ELSEWHERE | PUBLIC


async def snapshot(database: Database) -> dict[str, str]:
    """Everything that is stored, so that any trace of a request shows; the use of a key is no trace of it."""
    async with database.system() as session:
        return {
            table: str(
                await session.scalar(
                    text(f"SELECT jsonb_agg(to_jsonb(t) - 'last_used_at' ORDER BY t::text) FROM {table} AS t")
                )
            )
            for table in TABLES
        }


def of_nobody(ids: dict[str, str]) -> dict[str, str]:
    """Ids of the same form that nothing has."""
    return {name: str(new_id()) if "-" in each else new_id().hex * 2 for name, each in ids.items()}


@pytest.mark.parametrize("route", WITH_AN_ID, ids=" ".join)
async def test_a_foreign_id_answers_as_an_unknown_one_and_leaves_no_trace(
    route: Route, alices: Alices, bob: Tenant, database: Database, desk: PlayedDesk
) -> None:
    method, template = route
    before = await snapshot(database)
    foreign = await bob.client.request(method, template.format(**alices.ids), json=WITH_AN_ID[route])
    unknown_ids = of_nobody(alices.ids)
    unknown = await bob.client.request(method, template.format(**unknown_ids), json=WITH_AN_ID[route])
    assert foreign.status_code == unknown.status_code == 404, foreign.text
    assert foreign.json() == unknown.json()
    assert foreign.headers.items() >= {("content-type", "application/problem+json")}
    assert await snapshot(database) == before
    assert desk.requests == []


_STEPS = {"name": "Bob's", "steps": [{"channels": ["{channel_id}"]}]}
_HOOK = {"name": "Bob's", "kind": "slack", "config": {"url": "https://bob.example/hook"}}
_TIMES = {"starts_at": "2100-01-01T00:00:00Z", "ends_at": "2100-01-02T00:00:00Z"}
NAMED_IN_A_BODY: dict[Route, dict[str, Any]] = {
    ("POST", "/v1/monitors"): monitor(parents=["{monitor_id}"]),
    ("PATCH", "/v1/monitors"): {"parents": ["{monitor_id}"]},
    ("POST", "/v1/channels"): {**_HOOK, "fallback_channel_id": "{channel_id}"},
    ("PATCH", "/v1/channels"): {"fallback_channel_id": "{channel_id}"},
    ("POST", "/v1/alert-policies"): _STEPS,
    ("PATCH", "/v1/alert-policies"): _STEPS,
    ("POST", "/v1/maintenance-windows"): {"name": "Bob's", "monitors": ["{monitor_id}"], **_TIMES},
    ("PATCH", "/v1/maintenance-windows"): {"monitors": ["{monitor_id}"]},
}
_OWN = {
    "/v1/monitors": monitor(),
    "/v1/channels": _HOOK,
    "/v1/alert-policies": {"name": "Bob's"},
    "/v1/maintenance-windows": {"name": "Bob's", "all": True, **_TIMES},
}


def naming(body: dict[str, Any], ids: dict[str, str]) -> Any:
    text_of_body = json.dumps(body)
    for name, each in ids.items():
        text_of_body = text_of_body.replace(f"{{{name}}}", each)
    return json.loads(text_of_body)


@pytest.mark.parametrize("route", NAMED_IN_A_BODY, ids=" ".join)
async def test_a_foreign_id_in_a_body_is_refused_as_an_unknown_one_and_leaves_no_trace(
    route: Route, alices: Alices, bob: Tenant, database: Database
) -> None:
    method, path = route
    if method == "PATCH":
        path = (await bob.client.post(path, json=_OWN[path])).headers["Location"]
    before = await snapshot(database)
    unknown_ids = of_nobody(alices.ids)
    found = []
    for ids in (alices.ids, unknown_ids):
        answer = await bob.client.request(method, path, json=naming(NAMED_IN_A_BODY[route], ids))
        assert answer.status_code == 422, answer.text
        found.append(re.sub(r"[0-9a-f-]{36}", "…", answer.text))
    assert found[0] == found[1]
    assert await snapshot(database) == before


async def test_incidents_of_a_foreign_monitor_are_none(alices: Alices, bob: Tenant) -> None:
    answer = await bob.client.get("/v1/incidents", params={"monitor_id": alices.ids["monitor_id"]})
    assert answer.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("body", [{"nonsense": 1}, {"interval_seconds": 1}, {"check": {"kind": "http"}}])
async def test_an_invalid_change_does_not_tell_whether_the_id_exists(
    body: dict[str, Any], alices: Alices, bob: Tenant
) -> None:
    foreign = await bob.client.patch(f"/v1/monitors/{alices.ids['monitor_id']}", json=body)
    unknown = await bob.client.patch(f"/v1/monitors/{new_id()}", json=body)
    assert (foreign.status_code, foreign.json()) == (unknown.status_code, unknown.json())
    assert foreign.status_code == 404


@pytest.mark.parametrize(
    "path", sorted(path for method, path in OF_THE_OWN_TENANT if method == "GET"), ids=lambda path: path
)
async def test_lists_show_only_the_own_tenant(path: str, alices: Alices, bob: Tenant) -> None:
    response = await bob.client.get(path)
    assert response.status_code == 200
    assert not any(name in response.text for name in alices.names), response.text


@pytest.mark.parametrize("query", [{"tag": "owner:alice"}, {"q": "Alice"}, {"status": "pending"}, {"kind": "http"}])
async def test_filters_reach_only_the_own_tenant(query: dict[str, str], alices: Alices, bob: Tenant) -> None:
    assert (await bob.client.get("/v1/monitors", params=query)).json()["items"] == []


async def test_a_cursor_of_another_tenant_opens_nothing(alice: Tenant, alices: Alices, bob: Tenant) -> None:
    await alice.add_monitor(name="Alice's second")
    cursor = (await alice.client.get("/v1/monitors", params={"limit": 1})).json()["next_cursor"]
    assert cursor
    assert (await bob.client.get("/v1/monitors", params={"cursor": cursor})).json()["items"] == []


async def test_an_idempotency_key_belongs_to_one_tenant(alice: Tenant, bob: Tenant) -> None:
    headers = {"Idempotency-Key": "same"}
    mine = await alice.client.post("/v1/monitors", json=monitor(), headers=headers)
    other = await bob.client.post("/v1/monitors", json=monitor(), headers=headers)
    assert mine.status_code == other.status_code == 201
    assert mine.json()["id"] != other.json()["id"]


async def test_no_route_serves_without_a_valid_key(app: FastAPI, anonymous: Any) -> None:
    for authorization in BAD_AUTHORIZATIONS:
        headers = {} if authorization is None else {"Authorization": authorization.encode()}
        for method, template in sorted(routes(app) - PUBLIC):
            path = re.sub(r"{\w+}", str(new_id()), template)
            response = await anonymous.request(method, path, headers=headers)
            assert response.status_code == 401, (authorization, method, template, response.text)
            assert response.json()["code"] == "unauthorized"
            assert response.headers["www-authenticate"].startswith("Bearer")


async def test_each_route_asks_for_its_scope(
    app: FastAPI, alice: Tenant, database: Database, anonymous: Any
) -> None:
    admin_only = {("PATCH", "/v1/organisation")} | {r for r in routes(app) if "api-keys" in r[1]}
    admin_only |= {route for route in ELSEWHERE if route[0] != "GET"}
    readable = {route for route in routes(app) - PUBLIC if route[0] == "GET"} - admin_only
    allowed = {
        Scope.READ: readable,
        Scope.WRITE: routes(app) - PUBLIC - admin_only,
        Scope.ADMIN: routes(app) - PUBLIC,
    }
    for scope, expected in allowed.items():
        key = await add_key(database, alice.organisation_id, scope)
        granted = set()
        for method, template in routes(app) - PUBLIC:
            path = re.sub(r"{\w+}", str(new_id()), template)
            headers = {"Authorization": f"Bearer {key}"}
            response = await anonymous.request(method, path, headers=headers)
            # Another code says that the scope is right, and this organisation not the operator's.
            if response.status_code != 403 or response.json()["code"] != "insufficient_scope":
                granted.add((method, template))
        assert granted == expected, scope
