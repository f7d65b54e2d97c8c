"""``/v1/monitors/{id}/certificates``: read and accept."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest

from shared.db.session import Database
from shared.services.api_keys import Scope
from tests.integration.api.conftest import Tenant, add_key
from tests.integration.path.certificates import HTTPS, Viewer, certificate, reporting
from tests.integration.path.scene import Scene

CHECK = reporting(HTTPS, "issuer", "key")
ISSUERS = ("one", "two", "three")


@pytest.fixture
async def viewer(alice: Tenant, database: Database) -> Viewer:
    scene = Scene(database, alice.organisation_id)
    await scene.prepare()
    return Viewer(scene, database)


@pytest.fixture
async def path(alice: Tenant, viewer: Viewer) -> str:
    """A monitor that was shown three certificates, of which the last two are reported."""
    monitor_id = (await alice.add_monitor(check=CHECK))["id"]
    for issuer in ISSUERS:
        await viewer.look(UUID(monitor_id), CHECK, certificate(issuer=issuer))
    return f"/v1/monitors/{monitor_id}/certificates"


async def listed(tenant: Tenant, path: str) -> list[dict[str, Any]]:
    answer = await tenant.client.get(path)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_certificates_are_listed_newest_first_with_what_they_change(alice: Tenant, path: str) -> None:
    newest, second, first = await listed(alice, path)
    assert [each["facts"]["issuer"] for each in (first, second, newest)] == [f"CN={issuer}" for issuer in ISSUERS]
    assert first["facts"]["sans"] == ["a.test"]
    assert first["fingerprint_sha256"] == first["facts"]["fingerprint_sha256"]
    assert (first["changes"], first["accepted_by"], first["accepted_at"] is None) == ([], None, False)
    # What is reported is no measure for the next one: both are compared with the first.
    for each, issuer in ((second, "two"), (newest, "three")):
        told = f"the issuer changed from CN=one to CN={issuer}"
        assert (each["changes"], each["accepted_at"]) == ([{"kind": "issuer", "message": told}], None)


async def test_facts_are_those_of_the_result(alice: Tenant, path: str) -> None:
    (result,) = (await alice.client.get(path.replace("certificates", "results"), params={"limit": 1})).json()[
        "items"
    ]
    assert (result["status"], result["error"]["kind"]) == ("degraded", "tls_changed")
    assert (await listed(alice, path))[0]["facts"] == result["tls"]["certificate"]


async def test_lists_come_in_pages(alice: Tenant, path: str) -> None:
    first = (await alice.client.get(path, params={"limit": 2})).json()
    rest = (await alice.client.get(path, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert first["items"] + rest["items"] == await listed(alice, path)
    assert rest["next_cursor"] is None
    for query in ({"cursor": "!"}, {"cursor": "eA"}, {"limit": 0}, {"unknown": 1}):
        assert (await alice.client.get(path, params=query)).status_code == 422


async def test_accepting_says_who_and_twice_changes_nothing(alice: Tenant, viewer: Viewer, path: str) -> None:
    fingerprint = (await listed(alice, path))[1]["fingerprint_sha256"]
    once = await alice.client.post(f"{path}/{fingerprint}/accept")
    again = await alice.client.post(f"{path}/{fingerprint}/accept")
    assert (once.status_code, once.json()["accepted_by"]) == (200, "API key test")
    assert once.json()["accepted_at"] is not None
    assert again.json() == once.json()
    assert [each["accepted_at"] is None for each in await listed(alice, path)] == [True, False, False]
    monitor_id = UUID(path.split("/")[3])
    assert await viewer.look(monitor_id, CHECK, certificate(issuer="two")) == ("up", "")


async def test_what_is_not_there_cannot_be_accepted(alice: Tenant, path: str) -> None:
    known = (await listed(alice, path))[0]["fingerprint_sha256"]
    sibling = f"/v1/monitors/{(await alice.add_monitor())['id']}/certificates"
    for place, fingerprint, status in (
        (path, "0" * 64, 404),
        (sibling, known, 404),
        (path, known.upper() if known != known.upper() else "x", 422),
        (path, "%00", 422),
        (path, known[:-1], 422),
    ):
        answer = await alice.client.post(f"{place}/{fingerprint}/accept")
        assert answer.status_code == status, answer.text
    assert (await listed(alice, path))[0]["accepted_at"] is None


async def test_another_tenant_sees_and_accepts_nothing(alice: Tenant, bob: Tenant, path: str) -> None:
    fingerprint = (await listed(alice, path))[0]["fingerprint_sha256"]
    for answer in (await bob.client.get(path), await bob.client.post(f"{path}/{fingerprint}/accept")):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await listed(alice, path))[0]["accepted_at"] is None


async def test_a_key_that_may_only_read_accepts_nothing(
    alice: Tenant, database: Database, anonymous: httpx.AsyncClient, path: str
) -> None:
    headers = {"Authorization": f"Bearer {await add_key(database, alice.organisation_id, Scope.READ)}"}
    fingerprint = (await anonymous.get(path, headers=headers)).json()["items"][0]["fingerprint_sha256"]
    answer = await anonymous.post(f"{path}/{fingerprint}/accept", headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "check",
    [
        {**CHECK, "invert": True},
        {"kind": "http_steps", "steps": [{"name": "s", "url": "https://a.test/", "tls": CHECK["tls"]}]},
        reporting(HTTPS, "expiry"),
    ],
    ids=["inverted", "steps", "unknown kind"],
)
async def test_where_nothing_could_be_reported_the_option_is_refused(alice: Tenant, check: dict[str, Any]) -> None:
    answer = await alice.client.post("/v1/monitors", json={"name": "m", "check": check})
    assert answer.status_code == 422
    assert "report_changes" in answer.text
