"""What is wrong is refused with the field and the reason, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from shared.db.session import Database
from tests.integration.api.conftest import Tenant, monitor

URL = "https://shop.example/"


def http(**fields: Any) -> dict[str, Any]:
    return monitor(check={"kind": "http", "url": URL, **fields})


def asserting(**fields: Any) -> dict[str, Any]:
    return http(assertions=[{"source": "status", "operator": "in", "value": "200-299", **fields}])


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": (monitor(intervall_seconds=5), "intervall_seconds"),
    "unknown field of the check": (http(metod="GET"), "check.metod"),
    "no name": ({"check": {"kind": "http", "url": URL}}, "name"),
    "blank name": (monitor(name="  "), "name"),
    "control character in the name": (monitor(name="a\nb"), "name"),
    "interval too short": (monitor(interval_seconds=4), "interval_seconds"),
    "interval too long": (monitor(interval_seconds=86_401), "interval_seconds"),
    "interval that is text": (monitor(interval_seconds="often"), "interval_seconds"),
    "timeout longer than the interval": (monitor(interval_seconds=5, timeout_seconds=10), "timeout_seconds"),
    "timeout of nothing": (monitor(timeout_seconds=0), "timeout_seconds"),
    "too many retries": (monitor(retries=6), "retries"),
    "no region": (monitor(regions=[]), "regions"),
    "region that is no token": (monitor(regions=["eu.west"]), "regions"),
    "tag that is a number": (monitor(tags={"a": 1}), "tags.a"),
    "unknown kind": (monitor(check={"kind": "telnet"}), "check"),
    "no kind": (monitor(check={"url": URL}), "check"),
    "check that is text": (monitor(check="http"), "check"),
    "URL without a host": (http(url="https:///path"), "check.url"),
    "URL of another scheme": (http(url="file:///etc/passwd"), "check.url"),
    "URL with a line break": (http(url="https://shop.example/\r\nX: y"), "check.url"),
    "header with a line break": (http(headers={"X-Probe": "a\r\nb"}), "check.headers"),
    "header name with a colon": (http(headers={"X:Probe": "a"}), "check.headers"),
    "method of its own": (http(method="BREW"), "check.method"),
    "body on HEAD": (http(method="HEAD", body="x"), "check.body"),
    "token with a blank": (http(auth={"kind": "bearer", "token": "a b"}), "check.auth.token"),
    "unknown auth": (http(auth={"kind": "magic"}), "check.auth"),
    "too many redirects": (http(max_redirects=21), "check.max_redirects"),
    "assertion on nothing": (asserting(source="moon"), "check.assertions.0.source"),
    "assertion that cannot be evaluated": (asserting(operator="lt", value="many"), "check.assertions.0.value"),
    "pattern that does not compile": (
        asserting(source="body", operator="matches", value="("),
        "check.assertions.0.value",
    ),
    "JSON assertion without a path": (asserting(source="json", operator="eq", value=1), "check.assertions.0.path"),
    "NUL": (monitor(name="a\0b"), "name"),
    "NUL in an assertion": (asserting(operator="eq", value="\0"), "check.assertions.0.value"),
    "number that does not fit": (asserting(operator="eq", value=2**70), "check.assertions.0.value"),
    "bottomless value": (asserting(operator="eq", value=deep(40)), "check.assertions.0"),
    "bottomless value beyond the decoder": (asserting(operator="eq", value=deep(900)), "check.assertions.0"),
    "ssl without a host": (monitor(check={"kind": "ssl"}), "check.host"),
    "ssl port out of range": (monitor(check={"kind": "ssl", "host": "a.example", "port": 0}), "check.port"),
}


async def stored(database: Database) -> int:
    async with database.system() as session:
        query = "SELECT (SELECT count(*) FROM monitors) + (SELECT count(*) FROM outbox)"
        return int(await session.scalar(text(query)) or 0)


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_monitor_is_refused_by_field_and_not_stored(
    case: str, alice: Tenant, database: Database
) -> None:
    body, field = INVALID[case]
    response = await alice.client.post("/v1/monitors", json=body)
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == "validation_failed"
    assert field in [error["field"] for error in problem["errors"]], problem["errors"]
    assert all(error["reason"] for error in problem["errors"])
    assert await stored(database) == 0


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"interval_seconds": 5}, "timeout_seconds"),
        ({"nope": 1}, "nope"),
        ({"check": {"url": URL}}, "check"),
        ({"id": "01a22c5c-6e1f-7111-8bb7-85158992dc52"}, "id"),
        ({"revision": 9}, "revision"),
    ],
)
async def test_a_change_is_judged_together_with_what_is_stored(
    patch: dict[str, Any], field: str, alice: Tenant
) -> None:
    created = await alice.add_monitor(interval_seconds=60, timeout_seconds=30)
    path = f"/v1/monitors/{created['id']}"
    response = await alice.client.patch(path, json=patch)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field
    assert (await alice.client.get(path)).json()["revision"] == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"name": NaN}', "invalid_json"),
        (b'{"name": "\xff"}', "invalid_json"),
        (b'{"name": "\\ud800"}', "invalid_json"),
        (b'{"name": 1e999}', "invalid_json"),
        (b"[" * 100_000, "validation_failed"),
        (b"[]", "validation_failed"),
        (b"null", "validation_failed"),
        (b"", "validation_failed"),
    ],
    ids=repr,
)
async def test_broken_json_is_refused_without_a_stack_trace(content: bytes, code: str, alice: Tenant) -> None:
    for method, path in (("POST", "/v1/monitors"), ("PATCH", f"/v1/monitors/{(await alice.add_monitor())['id']}")):
        headers = {"Content-Type": "application/json"}
        response = await alice.client.request(method, path, content=content, headers=headers)
        assert (response.status_code, response.json()["code"]) == (422, code), response.text
        assert "Traceback" not in response.text


async def test_a_body_that_is_not_json_is_refused(alice: Tenant) -> None:
    response = await alice.client.post("/v1/monitors", content=b"name=x", headers={"Content-Type": "text/plain"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_one_mebibyte_is_refused(declared: bool, alice: Tenant) -> None:
    body = b'{"name": "' + b"x" * 1024 * 1024 + b'"}'

    async def chunks() -> Any:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    headers = {"Content-Type": "application/json"}
    content: Any = body if declared else chunks()
    response = await alice.client.post("/v1/monitors", content=content, headers=headers)
    assert response.status_code == 413, response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/monitors?limit=0", "limit"),
        ("/v1/monitors?limit=1001", "limit"),
        ("/v1/monitors?limit=many", "limit"),
        ("/v1/monitors?status=odd", "status"),
        ("/v1/monitors?kind=telnet", "kind"),
        ("/v1/monitors?q=%00", "q"),
        ("/v1/monitors?tag=%00", "tag"),
        ("/v1/monitors?stauts=up", "stauts"),
        ("/v1/monitors/{id}/results?since=yesterday", "since"),
        ("/v1/monitors/{id}/results?since=2026-01-01T00:00:00", "since"),
        ("/v1/monitors/{id}/results?until=0001-01-01T00:00:00%2B23:59", "until"),
        ("/v1/monitors/{id}/results?until=9999-12-31T23:59:59-23:59", "until"),
        ("/v1/monitors/12", "monitor_id"),
    ],
)
async def test_a_wrong_parameter_is_named(path: str, field: str, alice: Tenant) -> None:
    created = await alice.add_monitor()
    response = await alice.client.get(path.format(id=created["id"]))
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["field"] == field


async def test_unknown_routes_and_methods_are_problems_too(alice: Tenant) -> None:
    missing = await alice.client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    method = await alice.client.put("/v1/monitors", json={})
    assert (method.status_code, method.json()["code"]) == (405, "method_not_allowed")
    assert missing.headers["content-type"] == "application/problem+json"
