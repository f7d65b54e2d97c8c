"""An id has one spelling, in addresses, parameters and bodies; a word beside it is never taken for one."""

from __future__ import annotations

from itertools import product
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
from fastapi import FastAPI

from api.openapi import OPERATIONS
from tests.integration.api.conftest import Tenant, monitor

ID = UUID("019a7f3e-5b1c-7c2d-8e4f-0a1b2c3d4e5f")
SPELLINGS = {
    "urn": ID.urn,
    "braces": f"{{{ID}}}",
    "no hyphens": ID.hex,
    "a hyphen less": str(ID).replace("-", "", 1),
    "blank": f" {ID}",
    "line break": f"{ID}\n",
    "no digit": f"{ID}"[:-1] + "g",
    "number": "12",
}
WINDOW = {"name": "w", "starts_at": "2037-02-01T00:00:00Z", "ends_at": "2037-02-28T00:00:00Z"}
CHANNEL = {"name": "ops", "kind": "slack", "config": {"url": "https://ops.example/hook"}}


def bodies(spelled: str) -> dict[str, tuple[str, dict[str, Any], str]]:
    """Every field of a body that holds ids: where it is sent to, and the field that is named."""
    return {
        "parents": ("/v1/monitors", monitor(parents=[spelled]), "parents.0"),
        "fallback": ("/v1/channels", {**CHANNEL, "fallback_channel_id": spelled}, "fallback_channel_id"),
        "monitors": ("/v1/maintenance-windows", {**WINDOW, "monitors": [spelled]}, "monitors.0"),
        "channels": ("/v1/alert-policies", {"name": "p", "steps": [{"channels": [spelled]}]}, "steps.0.channels"),
    }


def operations_with_ids(app: FastAPI, where: str) -> list[tuple[str, str, str]]:
    """Method, address and parameter of each operation that takes an id there."""
    return [
        (method.upper(), path, parameter["name"])
        for path, methods in app.openapi()["paths"].items()
        for method in methods.keys() & OPERATIONS
        for parameter in methods[method].get("parameters", ())
        if parameter["in"] == where and '"uuid"' in str(parameter["schema"]).replace("'", '"')
    ]


def refused_fields(answer: httpx.Response) -> list[str]:
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed"), answer.text
    return [error["field"] for error in answer.json()["errors"]]


async def test_in_an_address_nothing_else_is_an_id(app: FastAPI, alice: Tenant) -> None:
    found = operations_with_ids(app, "path")
    assert len(found) > 20
    for (method, path, parameter), (case, spelled) in product(found, SPELLINGS.items()):
        address = path.replace(f"{{{parameter}}}", quote(spelled)).replace("{fingerprint}", "0" * 64)
        answer = await alice.client.request(method, address, json={} if method in {"PATCH", "POST"} else None)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (case, method, path, answer.text)
        assert str(ID) in answer.json()["detail"], (case, method, path)


async def test_in_a_query_and_a_body_nothing_else_is_an_id(app: FastAPI, alice: Tenant) -> None:
    [(method, path, parameter)] = operations_with_ids(app, "query")
    for case, spelled in SPELLINGS.items():
        answer = await alice.client.request(method, path, params={parameter: spelled})
        assert refused_fields(answer) == [parameter], case
        for name, (address, body, field) in bodies(spelled).items():
            fields = refused_fields(await alice.client.post(address, json=body))
            assert any(refused.startswith(field) for refused in fields), (case, name, fields)


async def test_capital_letters_are_the_same_id(alice: Tenant) -> None:
    created = await alice.add_monitor()
    spelled = created["id"].upper()
    assert (await alice.client.get(f"/v1/monitors/{spelled}")).json()["id"] == created["id"]
    assert (await alice.add_monitor(name="child", parents=[spelled]))["parents"] == [created["id"]]


async def test_a_word_where_others_have_an_id_has_methods_of_its_own(app: FastAPI, alice: Tenant) -> None:
    """Such as ``/v1/dead-letters/purge`` beside ``/v1/dead-letters/{letter_id}``."""
    paths = app.openapi()["paths"]
    with_ids = {path.rpartition("/")[0] for path in paths if path.endswith("_id}")}
    words = [path for path in paths if "{" not in path and path.rpartition("/")[0] in with_ids]
    assert {"/v1/dead-letters/purge", "/v1/alert-policies/default"} <= set(words)
    for path in words:
        served = {method.upper() for method in paths[path].keys() & OPERATIONS}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - served:
            answer = await alice.client.request(method, path, json={})
            assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed"), (method, path)
            assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == served
