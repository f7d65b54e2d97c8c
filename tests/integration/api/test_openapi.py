"""The OpenAPI document against the application: what it shows is accepted, and what it forbids is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from api.openapi import OPERATIONS
from tests.integration.api.conftest import Tenant, monitor

Document = dict[str, Any]
WINDOW = {
    "name": "Upgrade",
    "all": True,
    "starts_at": "2037-02-01T00:00:00Z",
    "ends_at": "2037-02-28T00:00:00Z",
}
CHANNEL = {"name": "ops", "kind": "slack", "config": {"url": "https://ops.example/hook"}}
CREATED = {
    "/v1/monitors": monitor(),
    "/v1/channels": CHANNEL,
    "/v1/alert-policies": {"name": "Mine"},
    "/v1/maintenance-windows": WINDOW,
}


@dataclass(frozen=True)
class Example:
    """A body that the document shows."""

    method: str
    path: str
    schema: Document
    value: Any


@pytest.fixture
def document(app: FastAPI) -> Document:
    return app.openapi()


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in document["paths"].items():
        for method in methods.keys() & OPERATIONS:
            yield method, path, methods[method]


def examples(document: Document) -> Iterator[Example]:
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        schema = content.get("schema", {})
        shown = [each["value"] for each in content.get("examples", {}).values()]
        for value in (*shown, *schema.get("examples", ())):
            yield Example(method, path, schema, value)


def test_every_reference_leads_somewhere(document: Document) -> None:
    waiting: list[Any] = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(reference := part.get("$ref"), str):
                assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def test_errors_have_one_form(document: Document) -> None:
    for method, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if path not in {"/livez", "/readyz"} and not status.startswith("2"):
                assert list(answer["content"]) == ["application/problem+json"], (method, path, status)


def test_every_shown_body_is_one_that_its_schema_allows(document: Document) -> None:
    found = list(examples(document))
    assert {example.method for example in found} == {"post", "patch"}
    for example in found:
        whole = {**example.schema, "components": document["components"]}
        faults = [fault.message for fault in Draft202012Validator(whole).iter_errors(example.value)]
        assert faults == [], (example.method, example.path)


async def test_every_shown_body_is_accepted(document: Document, alice: Tenant) -> None:
    for example in examples(document):
        path = example.path
        if "{" in path:
            collection = path.partition("/{")[0]
            created = await alice.client.post(collection, json=CREATED[collection])
            path = created.headers["Location"]
        answer = await alice.client.request(example.method, path, json=example.value)
        assert answer.is_success, (example.method, path, example.value, answer.text)


async def test_every_status_that_is_given_is_documented(
    document: Document, alice: Tenant, anonymous: httpx.AsyncClient
) -> None:
    """Each kind of error, from a route that has it."""
    created = await alice.add_monitor()
    path, template = f"/v1/monitors/{created['id']}", "/v1/monitors/{monitor_id}"
    json = {"Content-Type": "application/json"}
    key = {"Idempotency-Key": "k"}
    await alice.client.post("/v1/channels", json=CHANNEL, headers=key)
    given = [
        ("patch", template, 404, await alice.client.patch(f"/v1/monitors/{created['id'][:-4]}0000", json={})),
        ("patch", template, 412, await alice.client.patch(path, json={}, headers={"If-Match": '"9"'})),
        ("patch", template, 422, await alice.client.patch(path, json={"retries": 9})),
        ("post", "/v1/monitors", 401, await anonymous.post("/v1/monitors", json=monitor())),
        ("post", "/v1/monitors", 409, await alice.client.post("/v1/monitors", json=monitor(), headers=key)),
        ("post", "/v1/monitors", 413, await alice.client.post("/v1/monitors", content=b" " * 2**21, headers=json)),
        ("post", "/v1/monitors", 415, await alice.client.post("/v1/monitors", content=b"x")),
    ]
    for method, documented, status, answer in given:
        assert answer.status_code == status, answer.text
        assert str(status) in document["paths"][documented][method]["responses"], (method, documented, status)


UNWRITTEN: dict[str, tuple[str, Any]] = {
    "text for a whole number": ("/v1/monitors", monitor(interval_seconds="60")),
    "truth for a whole number": ("/v1/monitors", monitor(retries=True)),
    "text for a number": ("/v1/monitors", monitor(timeout_seconds="5")),
    "truth for a number": ("/v1/monitors", monitor(retry_delay_seconds=True)),
    "text for a truth value": (
        "/v1/monitors",
        monitor(check={"kind": "http", "url": "https://a.example/", "tls": {"verify": "no"}}),
    ),
    "a whole number for a truth value": ("/v1/channels", {**CHANNEL, "default": 1}),
    "text in a list of numbers": (
        "/v1/monitors",
        monitor(check={"kind": "http", "url": "https://a.example/", "tls": {"expiry_warning_days": ["1"]}}),
    ),
    "text for the number of a channel": (
        "/v1/channels",
        {
            "name": "mail",
            "kind": "email",
            "config": {
                "to": ["a@shop.example"],
                "smtp": {"host": "m.example", "port": "25", "sender": "b@m.example"},
            },
        },
    ),
    "text for a priority": ("/v1/alert-policies", {"name": "Mine", "priority": "1"}),
    "seconds for a time of day": (
        "/v1/alert-policies",
        {"name": "Mine", "steps": [{"quiet_hours": {"timezone": "UTC", "from": 79200, "to": "07:00"}}]},
    ),
    "seconds since 1970 for a time": ("/v1/maintenance-windows", {**WINDOW, "ends_at": 4_102_531_200}),
    "seconds since 1970 as text": ("/v1/maintenance-windows", {**WINDOW, "ends_at": "4102531200"}),
    "an offset that leads out of the calendar": (
        "/v1/maintenance-windows",
        {**WINDOW, "ends_at": "9999-12-31T23:59:59-23:59"},
    ),
    "seconds since 1970 for the end of a key": (
        "/v1/api-keys",
        {"name": "CI", "scopes": ["read"], "expires_at": 4_102_531_200},
    ),
    "a key that ends out of the calendar": (
        "/v1/api-keys",
        {"name": "CI", "scopes": ["read"], "expires_at": "9999-12-31T23:59:59-23:59"},
    ),
    "seconds since 1970 for a local time": (
        "/v1/maintenance-windows",
        {
            "name": "Patch day",
            "all": True,
            "schedule": {
                "rrule": "FREQ=DAILY",
                "first_start": 1_893_456_000,
                "duration_minutes": 60,
                "timezone": "UTC",
            },
        },
    ),
}


@pytest.mark.parametrize("case", UNWRITTEN)
async def test_nothing_is_guessed(case: str, alice: Tenant) -> None:
    path, body = UNWRITTEN[case]
    answer = await alice.client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text


async def test_a_whole_number_may_be_written_with_a_point(alice: Tenant) -> None:
    assert (await alice.add_monitor(interval_seconds=90.0))["interval_seconds"] == 90


async def test_times_are_answered_in_utc_from_the_first_answer_on(alice: Tenant) -> None:
    wanted = {**WINDOW, "starts_at": "2100-01-01T02:00:00+02:00", "ends_at": "9999-12-31T23:59:59Z"}
    created = (await alice.client.post("/v1/maintenance-windows", json=wanted)).json()
    read = (await alice.client.get(f"/v1/maintenance-windows/{created['id']}")).json()
    assert created["starts_at"] == read["starts_at"] == "2100-01-01T00:00:00Z"
    assert created["ends_at"] == read["ends_at"] == "9999-12-31T23:59:59Z"
    key = {"name": "CI", "scopes": ["read"], "expires_at": "2100-01-01T02:00:00+02:00"}
    assert (await alice.client.post("/v1/api-keys", json=key)).json()["expires_at"] == "2100-01-01T00:00:00Z"


ALLOWED = {
    "/v1/monitors": "GET, HEAD, POST",
    "/v1/monitors/{id}": "GET, HEAD, PATCH, DELETE",
    "/v1/monitors/{id}/pause": "POST",
    "/v1/alert-policies/default": "GET, HEAD",
    "/v1/dead-letters/purge": "POST",
    "/ping/token": "GET, HEAD, POST",
    "/livez": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
async def test_a_refused_method_names_all_that_are_served(path: str, alice: Tenant) -> None:
    answer = await alice.client.put(path.format(id="019a1f0e-6f0a-7cc3-98f5-1d1f7f2a9d10"))
    assert (answer.status_code, answer.headers["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, ALLOWED[path])


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/monitors"])
async def test_head_is_get_without_its_body(path: str, alice: Tenant) -> None:
    head, get = await alice.client.head(path), await alice.client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_null_puts_a_field_of_each_resource_back_to_its_default(alice: Tenant) -> None:
    changes = {
        "/v1/monitors": ("retries", 3, 0),
        "/v1/channels": ("default", False, True),
        "/v1/alert-policies": ("priority", 7, 100),
        "/v1/maintenance-windows": ("tags", {"a": "b"}, {}),
    }
    for path, (name, other, default) in changes.items():
        created = await alice.client.post(path, json={**CREATED[path], name: other})
        changed = await alice.client.patch(created.headers["Location"], json={name: None})
        assert (changed.status_code, changed.json()[name]) == (200, default), changed.text
