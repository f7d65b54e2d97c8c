"""Channels over the API: secrets go in and never come out, and a test tells what happened (SEC-05, NOTIF-03)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text
from standardwebhooks import Webhook

from api.context import Context
from shared.channels.tools import build_tools
from shared.contracts.sealing import MASK
from shared.db.base import new_id
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.http.guard import AddressPolicy
from tests.integration.api.conftest import Tenant
from tests.integration.channels.sinks import Answer, HttpSink

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
async def sink() -> AsyncIterator[HttpSink]:
    async with HttpSink() as running:
        yield running


@pytest.fixture
def app(app: FastAPI, context: Context) -> FastAPI:
    """As on one machine: channels may be at private addresses."""
    tools = build_tools(AddressPolicy(allow_private=True), SystemClock())
    app.state.context = replace(context, tools=replace(tools, timeout_seconds=1.0))
    return app


async def add(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    body = {"name": "ops", "kind": "webhook", "config": {"url": "https://ops.example/hook/SECRETPATH"}, **fields}
    answer = await tenant.client.post("/v1/channels", json=body)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def test_a_channel_is_created_read_changed_and_deleted(alice: Tenant) -> None:
    created = await add(alice)
    path = f"/v1/channels/{created['id']}"
    assert (created["kind"], created["default"], created["failing_since"]) == ("webhook", True, None)
    assert created["config"] == {"url": MASK, "secret": None, "previous_secret": None, "headers": {}}
    assert created["destination"] == "https://ops.example/…"
    changed = (await alice.client.patch(path, json={"default": False, "name": "night"})).json()
    assert (changed["name"], changed["default"], changed["config"]) == ("night", False, created["config"])
    assert [item["id"] for item in (await alice.client.get("/v1/channels")).json()["items"]] == [created["id"]]
    assert (await alice.client.delete(path)).status_code == 204
    assert (await alice.client.get(path)).status_code == 404


async def test_a_mask_written_back_keeps_the_secret_that_works(
    alice: Tenant, sink: HttpSink, database: Database
) -> None:
    config = {"url": f"{sink.url}/SECRETPATH", "secret": SECRET, "headers": {"X-Any": "SECRETHEADER"}}
    created = await add(alice, config=config)
    path = f"/v1/channels/{created['id']}"
    read = await alice.client.get(path)
    assert read.json()["config"] == {
        "url": MASK,
        "secret": MASK,
        "previous_secret": None,
        "headers": {"X-Any": MASK},
    }
    changed = await alice.client.patch(path, json={"config": read.json()["config"]})
    assert changed.status_code == 200, changed.text
    tested = await alice.client.post(f"{path}/test")
    assert tested.json()["outcome"] == "delivered"
    (arrival,) = sink.arrivals
    Webhook(SECRET).verify(arrival.body, arrival.headers)
    assert (arrival.path, arrival.headers["x-any"]) == ("/SECRETPATH", "SECRETHEADER")
    for answer in (read, changed, tested, await alice.client.get("/v1/channels")):
        assert "SECRET" not in answer.text
        assert SECRET not in answer.text
    assert "SECRET" not in await dump(database)


async def dump(database: Database) -> str:
    async with database.system() as session:
        parts = [
            str(await session.scalar(text(f"SELECT jsonb_agg(t) FROM {table} AS t")))
            for table in ("channels", "deliveries", "incidents", "incident_events", "outbox")
        ]
    return "\n".join(parts)


async def test_a_mask_does_not_send_its_secret_to_another_address(alice: Tenant) -> None:
    token = {"token": "1234567:SECRETTOKEN", "chat_id": "1"}
    channels = {
        "telegram": (token, {"base_url": "https://evil.example", "token": MASK, "chat_id": "1"}, "config.token"),
        "webhook": (
            {"url": "https://ops.example/", "headers": {"X-Any": "SECRET"}, "secret": SECRET},
            {"url": "https://evil.example/", "headers": {"X-Any": MASK}, "secret": MASK},
            "config.headers.X-Any",
        ),
    }
    for kind, (config, change, field) in channels.items():
        created = await add(alice, kind=kind, config=config)
        refused = await alice.client.patch(f"/v1/channels/{created['id']}", json={"config": change})
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["field"] == field
    # What signs is never sent: a webhook may move and keep its key.
    hook = await add(alice, kind="webhook", config=channels["webhook"][0])
    moved = {"url": "https://new.example/", "secret": MASK}
    assert (await alice.client.patch(f"/v1/channels/{hook['id']}", json={"config": moved})).status_code == 200


async def test_a_mask_that_stands_for_nothing_is_refused(alice: Tenant) -> None:
    created = await add(alice)
    for config, field in (
        ({"url": MASK, "secret": MASK}, "config.secret"),
        ({"url": MASK, "headers": {"X": MASK}}, "config.headers.X"),
    ):
        refused = await alice.client.patch(f"/v1/channels/{created['id']}", json={"config": config})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == field
    fresh = await alice.client.post("/v1/channels", json={"name": "x", "kind": "slack", "config": {"url": MASK}})
    assert (fresh.status_code, fresh.json()["errors"][0]["field"]) == (422, "config.url")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "pigeon"}, "kind"),
        ({"config": {}}, "config.url"),
        ({"config": {"url": "https://x.example/", "typo": 1}}, "config.typo"),
        ({"config": {"url": "https://x.example/", "secret": "hunter2"}}, "config.secret"),
        ({"templates": {"body": "{{ nothing }}"}}, "templates.body"),
        ({"templates": {"title": "{% for x in y %}"}}, "templates.title"),
        ({"fallback_channel_id": str(new_id())}, "fallback_channel_id"),
        ({"typo": 1}, "typo"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_work_is_refused_by_field(fields: dict[str, Any], field: str, alice: Tenant) -> None:
    body = {"name": "ops", "kind": "webhook", "config": {"url": "https://ops.example/"}, **fields}
    answer = await alice.client.post("/v1/channels", json=body)
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["errors"]] == [field]
    assert "hunter2" not in answer.text


ENDS = {
    "500": (Answer(500, body=b"we were asked for /bot1:SECRET1/send?key=SECRET2 with SECRET1"), "answered 500"),
    "timeout": (Answer(wait=5), "within 1 s"),
    "lost": (Answer(hang_up=True), "closed the connection"),
    "redirect": (Answer(302, {"Location": "http://127.0.0.1/SECRET1"}, b"SECRET1"), "a redirect"),
}


@pytest.mark.parametrize("case", ENDS)
async def test_a_test_tells_what_went_wrong_without_the_secrets_of_the_address(
    case: str, alice: Tenant, sink: HttpSink, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer, words = ENDS[case]
    sink.judge = lambda _: answer
    created = await add(alice, config={"url": f"{sink.url}/bot1:SECRET1/send?key=SECRET2"})
    tested = await alice.client.post(f"/v1/channels/{created['id']}/test")
    assert tested.status_code == 200
    body = tested.json()
    assert body["outcome"] == "failed"
    assert words in body["error"]
    if case == "500":
        assert body["response"].startswith("we were asked for ***")
    logged = (await alice.client.get(f"/v1/channels/{created['id']}/deliveries")).json()["items"]
    assert [(item["event"], item["state"], item["error"]) for item in logged] == [("test", "failed", body["error"])]
    failing = (await alice.client.get(f"/v1/channels/{created['id']}")).json()
    assert failing["failing_since"] is not None
    for told in (tested.text, str(logged), str(failing), await dump(database), caplog.text):
        assert "SECRET" not in told


async def test_a_channel_may_not_lead_inside(alice: Tenant, app: FastAPI, sink: HttpSink, context: Context) -> None:
    app.state.context = context
    created = await add(alice, config={"url": sink.url})
    tested = (await alice.client.post(f"/v1/channels/{created['id']}/test")).json()
    assert (tested["outcome"], tested["error"]) == (
        "failed",
        "127.0.0.1 is blocked: 127.0.0.1 is not a public address",
    )
    assert sink.arrivals == []


async def test_apprise_is_the_operators_decision(alice: Tenant) -> None:
    created = await add(alice, kind="apprise", config={"url": "json://127.0.0.1:1/SECRETPATH"})
    assert created["destination"] == "json://…"
    tested = (await alice.client.post(f"/v1/channels/{created['id']}/test")).json()
    assert "TOCSIN_APPRISE" in tested["error"]


async def test_somebody_elses_channel_is_no_fallback_and_in_no_policy(alice: Tenant, bob: Tenant) -> None:
    foreign = (await add(alice))["id"]
    body = {"name": "x", "kind": "slack", "config": {"url": "https://x.example/"}, "fallback_channel_id": foreign}
    refused = await bob.client.post("/v1/channels", json=body)
    assert refused.json()["errors"] == [{"field": "fallback_channel_id", "reason": "there is no such channel"}]
    policy = {"name": "x", "steps": [{"channels": [foreign]}]}
    refused = await bob.client.post("/v1/alert-policies", json=policy)
    assert refused.json()["errors"] == [{"field": "steps.0.channels.0", "reason": "there is no such channel"}]
