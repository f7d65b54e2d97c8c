"""Keys, the organisation and its members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import text

from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from tests.integration.api.conftest import Tenant


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_key_is_shown_once_and_known_by_its_hash_only(alice: Tenant, database: Database) -> None:
    created = await alice.client.post("/v1/api-keys", json={"name": "CI", "scopes": ["read"]})
    assert created.status_code == 201
    key = created.json()["key"]
    assert key.startswith("tcs_")
    assert len(key) > 40
    listed = await alice.client.get("/v1/api-keys")
    assert key not in listed.text
    assert listed.json()["items"][-1] == {k: v for k, v in created.json().items() if k != "key"}
    async with database.system() as session:
        dump = await session.scalar(text("SELECT jsonb_agg(to_jsonb(k))::text FROM api_keys AS k"))
    assert dump is not None
    assert key not in dump


async def test_a_deleted_key_is_refused_from_the_next_request_on(alice: Tenant, anonymous: Any) -> None:
    created = (await alice.client.post("/v1/api-keys", json={"name": "CI", "scopes": ["read"]})).json()
    assert (await anonymous.get("/v1/monitors", headers=bearer(created["key"]))).status_code == 200
    assert (await alice.client.delete(f"/v1/api-keys/{created['id']}")).status_code == 204
    assert (await anonymous.get("/v1/monitors", headers=bearer(created["key"]))).status_code == 401
    assert (await alice.client.delete(f"/v1/api-keys/{created['id']}")).status_code == 404


async def test_an_expired_key_is_refused(alice: Tenant, anonymous: Any, database: Database) -> None:
    now = to_datetime(SystemClock().now_ms())
    wanted = {"name": "CI", "scopes": ["read"], "expires_at": (now + timedelta(hours=1)).isoformat()}
    key = (await alice.client.post("/v1/api-keys", json=wanted)).json()["key"]
    assert (await anonymous.get("/v1/monitors", headers=bearer(key))).status_code == 200
    async with database.system() as session:
        await session.execute(
            text("UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE name = 'CI'")
        )
    assert (await anonymous.get("/v1/monitors", headers=bearer(key))).status_code == 401
    past = {**wanted, "expires_at": (now - timedelta(hours=1)).isoformat()}
    refused = await alice.client.post("/v1/api-keys", json=past)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "expires_at")


async def test_the_use_of_a_key_is_noted(alice: Tenant) -> None:
    (key,) = (await alice.client.get("/v1/api-keys")).json()["items"]
    assert key["last_used_at"] is not None


async def test_the_organisation_is_read_and_renamed(alice: Tenant) -> None:
    assert (await alice.client.get("/v1/organisation")).json()["name"] == "alice"
    renamed = await alice.client.patch("/v1/organisation", json={"name": "Alice & Co"})
    assert renamed.json()["name"] == "Alice & Co"
    assert (await alice.client.get("/v1/organisation")).json() == renamed.json()


async def test_members_are_listed(alice: Tenant, bob: Tenant) -> None:
    (member,) = (await alice.client.get("/v1/members")).json()["items"]
    assert (member["email"], member["role"]) == ("owner@alice.example", "owner")
