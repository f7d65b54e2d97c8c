"""What is wrong is refused with the field and the reason, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
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
    "NUL": (monitor(tags={"a": "\0"}), "tags.a"),
    "NUL in a name": (monitor(tags={"\0": "a"}), "tags"),
    "number that does not fit": (
        asserting(source="json", path="$.a", operator="eq", value=2**70),
        "check.assertions.0.value",
    ),
    "bottomless value": (asserting(operator="eq", value=deep(40)), "check.assertions.0"),
    "bottomless value beyond the decoder": (asserting(operator="eq", value=deep(900)), "check.assertions.0"),
    "ssl without a host": (monitor(check={"kind": "ssl"}), "check.host"),
    "ssl port out of range": (monitor(check={"kind": "ssl", "host": "a.example", "port": 0}), "check.port"),
}


async def stored(database: Database) -> int:
    async with database.system() as session:
        query = "SELECT (SELECT count(*) FROM monitors) + (SELECT count(*) FROM outbox)"
        return int(await session.scalar(text(query)) or 0)


async def test_an_invalid_monitor_is_refused_by_field_and_not_stored(alice: Tenant, database: Database) -> None:
    for case, (body, field) in INVALID.items():
        response = await alice.client.post("/v1/monitors", json=body)
        assert_refused(case, response, field)
    assert await stored(database) == 0


def assert_refused(case: str, response: httpx.Response, field: str) -> None:
    assert response.status_code == 422, (case, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == "validation_failed", (case, problem)
    assert field in [error["field"] for error in problem["errors"]], (case, problem)
    assert all(error["reason"] for error in problem["errors"]), (case, problem)


CHANGES: dict[str, dict[str, Any]] = {
    "timeout_seconds": {"interval_seconds": 5},
    "nope": {"nope": 1},
    "check": {"check": {"url": URL}},
    "id": {"id": "01a22c5c-6e1f-7111-8bb7-85158992dc52"},
    "revision": {"revision": 9},
}


async def test_a_change_is_judged_together_with_what_is_stored(alice: Tenant) -> None:
    created = await alice.add_monitor(interval_seconds=60, timeout_seconds=30)
    path = f"/v1/monitors/{created['id']}"
    for field, patch in CHANGES.items():
        assert_refused(field, await alice.client.patch(path, json=patch), field)
    assert (await alice.client.get(path)).json()["revision"] == 1


BROKEN: dict[str, tuple[bytes, str]] = {
    "cut off": (b"{", "invalid_json"),
    "NaN": (b'{"name": NaN}', "invalid_json"),
    "not UTF-8": (b'{"name": "\xff"}', "invalid_json"),
    "half a surrogate pair": (b'{"name": "\\ud800"}', "invalid_json"),
    "endless number": (b'{"name": 1e999}', "invalid_json"),
    "bottomless": (b"[" * 100_000, "validation_failed"),
    "list": (b"[]", "validation_failed"),
    "null": (b"null", "validation_failed"),
    "nothing": (b"", "validation_failed"),
    "a field twice": (b'{"name": "a", "name": "b"}', "validation_failed"),
    "a field twice in different spellings": (b'{"name": "a", "n\\u0061me": "b"}', "validation_failed"),
    "a field twice further down": (b'{"check": {"kind": "http", "kind": "tcp"}}', "validation_failed"),
}


async def test_broken_json_is_refused_without_a_stack_trace(alice: Tenant) -> None:
    created = await alice.add_monitor()
    headers = {"Content-Type": "application/json"}
    for case, (content, code) in BROKEN.items():
        for method, path in (("POST", "/v1/monitors"), ("PATCH", f"/v1/monitors/{created['id']}")):
            response = await alice.client.request(method, path, content=content, headers=headers)
            assert (response.status_code, response.json()["code"]) == (422, code), (case, method, response.text)
            assert "Traceback" not in response.text


async def test_a_body_that_is_not_json_is_refused(alice: Tenant) -> None:
    response = await alice.client.post("/v1/monitors", content=b"name=x", headers={"Content-Type": "text/plain"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_a_body_over_one_mebibyte_is_refused(alice: Tenant) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    reads = []

    async def unread() -> AsyncIterator[bytes]:
        reads.append(1)
        yield b" "

    headers = {"Content-Type": "application/json"}
    announced = {**headers, "Content-Length": str(1024 * 1024 + 1)}
    for response in (
        await alice.client.post("/v1/monitors", content=endless(), headers=headers),
        await alice.client.post("/v1/monitors", content=unread(), headers=announced),
    ):
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")
        assert response.headers["content-type"] == "application/problem+json"
    assert reads == []


async def test_a_compressed_body_is_refused(alice: Tenant) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    response = await alice.client.post("/v1/monitors", content=b"{}", headers=headers)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


WRONG_FIELDS = {f"field_{number}": 1 for number in range(5000)}


async def test_an_answer_does_not_grow_with_what_is_wrong(alice: Tenant) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}"
    for response in (
        await alice.client.post("/v1/monitors", json=WRONG_FIELDS),
        await alice.client.patch(path, json=WRONG_FIELDS),
        await alice.client.get("/v1/monitors", params=WRONG_FIELDS),
    ):
        assert len(response.json()["errors"]) == 50
        assert response.json()["detail"].endswith(" more")
        assert len(response.content) < 20_000


PARAMETERS = {
    "/v1/monitors?limit=0": "limit",
    "/v1/monitors?limit=1001": "limit",
    "/v1/monitors?limit=many": "limit",
    "/v1/monitors?status=odd": "status",
    "/v1/monitors?kind=telnet": "kind",
    "/v1/monitors?q=%00": "q",
    "/v1/monitors?tag=%00": "tag",
    "/v1/monitors?stauts=up": "stauts",
    "/v1/monitors/{id}/results?since=yesterday": "since",
    "/v1/monitors/{id}/results?since=2026-01-01T00:00:00": "since",
    "/v1/monitors/{id}/results?until=0001-01-01T00:00:00%2B23:59": "until",
    "/v1/monitors/{id}/results?until=9999-12-31T23:59:59-23:59": "until",
}


async def test_a_wrong_parameter_is_named(alice: Tenant) -> None:
    created = await alice.add_monitor()
    for path, field in PARAMETERS.items():
        assert_refused(path, await alice.client.get(path.format(id=created["id"])), field)


async def test_unknown_routes_and_methods_are_problems_too(alice: Tenant) -> None:
    missing = await alice.client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    method = await alice.client.put("/v1/monitors", json={})
    assert (method.status_code, method.json()["code"]) == (405, "method_not_allowed")
    assert missing.headers["content-type"] == "application/problem+json"
