"""Monitors over HTTP: what is written is what is stored, announced and read back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sqlalchemy import text

from shared.contracts.sealing import MASK, Sealer
from shared.db.models import Monitor
from shared.db.session import Database
from tests.integration.api.conftest import SECRET_KEY, Commits, Tenant, monitor

HTTP = {"kind": "http", "url": "https://shop.example/health"}


async def rows(database: Database, query: str) -> list[Any]:
    async with database.system() as session:
        return list(await session.execute(text(query)))


async def test_a_created_monitor_reads_back_as_the_contract_says(alice: Tenant, commits: Commits) -> None:
    created = await alice.add_monitor(tags={"team": "shop"}, timeout_seconds=10)
    read = (await alice.client.get(f"/v1/monitors/{created['id']}")).json()
    assert read == {**created, "next_check_at": read["next_check_at"]}
    assert read["status"] == "pending"
    assert read["last_result"] is None
    assert read["revision"] == 1
    assert read["check"]["method"] == "GET"
    assert read["created_at"].endswith("Z")
    assert read["next_check_at"] > read["created_at"]
    assert commits.count == 1


async def test_a_change_is_stored_with_its_period_and_its_message(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}"
    await alice.client.patch(path, json={"interval_seconds": 30})
    await alice.client.post(f"{path}/pause")
    assert await rows(database, "SELECT 1 FROM schedule_periods WHERE ends_at IS NULL") == []
    await alice.client.post(f"{path}/resume")
    await alice.client.patch(path, json={"name": "Renamed"})
    await alice.client.delete(path)

    periods = await rows(
        database,
        "SELECT revision, interval_ms, starts_at, ends_at FROM schedule_periods ORDER BY starts_at, revision",
    )
    assert [(p.revision, p.interval_ms) for p in periods] == [(1, 60_000), (2, 30_000), (4, 30_000)]
    assert all(period.ends_at is not None for period in periods)
    assert periods[0].ends_at == periods[1].starts_at
    assert periods[1].ends_at <= periods[2].starts_at
    messages = await rows(database, "SELECT topic, key, payload->>'revision' FROM outbox ORDER BY id")
    assert [tuple(message) for message in messages] == [
        ("schedule", created["id"], str(revision)) for revision in (1, 2, 3, 4, 5, 5)
    ]
    assert (await alice.client.get(path)).status_code == 404


async def test_a_change_that_changes_nothing_is_not_announced(alice: Tenant, database: Database) -> None:
    check = {**HTTP, "auth": {"kind": "bearer", "token": "hunter2"}}
    created = await alice.add_monitor(check=check)
    changed = await alice.client.patch(f"/v1/monitors/{created['id']}", json=monitor(check=check))
    assert changed.json()["revision"] == 1
    assert len(await rows(database, "SELECT 1 FROM outbox")) == 1


async def test_null_puts_a_field_back_to_its_default(alice: Tenant) -> None:
    created = await alice.add_monitor(retries=3)
    path = f"/v1/monitors/{created['id']}"
    assert (await alice.client.patch(path, json={"retries": None})).json()["retries"] == 0
    refused = await alice.client.patch(path, json={"name": None})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "name"


async def test_a_paused_monitor_has_no_next_check_and_keeps_its_last_result(alice: Tenant) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}"
    paused = (await alice.client.post(f"{path}/pause")).json()
    assert (paused["status"], paused["next_check_at"], paused["revision"]) == ("paused", None, 2)
    again = (await alice.client.post(f"{path}/pause")).json()
    assert again["revision"] == 2
    resumed = (await alice.client.post(f"{path}/resume")).json()
    assert (resumed["status"], resumed["revision"]) == ("pending", 3)
    assert resumed["next_check_at"] is not None


async def test_changes_are_refused_when_the_monitor_moved_on(alice: Tenant) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}"
    etag = (await alice.client.get(path)).headers["ETag"]
    first = await alice.client.patch(path, json={"name": "A"}, headers={"If-Match": etag})
    assert first.status_code == 200
    second = await alice.client.patch(path, json={"name": "B"}, headers={"If-Match": etag})
    assert (second.status_code, second.json()["code"]) == (412, "revision_mismatch")
    assert (await alice.client.get(path)).json()["name"] == "A"
    fresh = first.headers["ETag"]
    either = await alice.client.patch(path, json={"name": "C"}, headers={"If-Match": f'"99", W/{fresh}'})
    assert either.json()["name"] == "C"
    assert (await alice.client.patch(path, json={"name": "D"}, headers={"If-Match": "*"})).status_code == 200
    broken = await alice.client.patch(path, json={"name": "E"}, headers={"If-Match": "three"})
    assert broken.status_code == 422


async def test_two_changes_at_once_are_one_after_the_other(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor()
    path = f"/v1/monitors/{created['id']}"
    answers = await asyncio.gather(
        *(alice.client.patch(path, json={"interval_seconds": 60 + n}) for n in range(1, 6))
    )
    assert sorted(answer.json()["revision"] for answer in answers) == [2, 3, 4, 5, 6]
    assert len(await rows(database, "SELECT 1 FROM schedule_periods WHERE ends_at IS NULL")) == 1


SECRET_CHECK = {
    **HTTP,
    "auth": {"kind": "basic", "username": "probe", "password": "hunter2"},
    "headers": {"X-Api-Key": "s3cr3t", "Accept": "text/plain"},
}


async def test_secrets_are_masked_and_a_mask_written_back_keeps_them(alice: Tenant, database: Database) -> None:
    created = await alice.add_monitor(check=SECRET_CHECK)
    path = f"/v1/monitors/{created['id']}"
    read = (await alice.client.get(path)).json()["check"]
    assert read["auth"] == {"kind": "basic", "username": "probe", "password": MASK}
    assert read["headers"] == {"X-Api-Key": MASK, "Accept": "text/plain"}

    changed = await alice.client.patch(path, json={"check": {**read, "url": "https://shop.example/other"}})
    assert changed.status_code == 200
    for response in (changed, await alice.client.get("/v1/monitors")):
        assert "hunter2" not in response.text
        assert "s3cr3t" not in response.text
    (stored,) = await rows(database, "SELECT check_spec, check_spec::text AS raw FROM monitors")
    assert "hunter2" not in stored.raw
    opened = Sealer([SECRET_KEY]).open(stored.check_spec)
    assert opened.kind == "http"
    assert opened.url == "https://shop.example/other"
    assert opened.headers["X-Api-Key"] == "s3cr3t"
    assert opened.auth is not None
    assert opened.auth.kind == "basic"
    assert opened.auth.password == "hunter2"


async def test_a_mask_that_stands_for_nothing_is_refused(alice: Tenant) -> None:
    check = {**HTTP, "auth": {"kind": "bearer", "token": MASK}}
    refused = await alice.client.post("/v1/monitors", json=monitor(check=check))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "check.auth.token"


async def test_filters_find_what_they_say(alice: Tenant) -> None:
    shop = await alice.add_monitor(name="Shop 100%", tags={"team": "shop"})
    mail = await alice.add_monitor(
        name="Mail", tags={"team": "mail"}, check={"kind": "ssl", "host": "mail.example"}
    )
    await alice.client.post(f"/v1/monitors/{mail['id']}/pause")

    async def found(**query: str) -> list[str]:
        response = await alice.client.get("/v1/monitors", params=query)
        assert response.status_code == 200, response.text
        return [item["id"] for item in response.json()["items"]]

    assert await found(status="paused") == [mail["id"]]
    assert await found(status="pending") == [shop["id"]]
    assert await found(status="up") == []
    assert await found(kind="ssl") == [mail["id"]]
    assert await found(tag="team") == [shop["id"], mail["id"]]
    assert await found(tag="team:mail") == [mail["id"]]
    assert await found(q="SHOP") == [shop["id"]]
    assert await found(q="0%") == [shop["id"]]
    assert await found(q="mail.ex") == [mail["id"]]
    assert await found(q="_") == []
    assert await found(q="[") == []
    order = {"kind": "http_steps", "steps": [{"name": "order", "url": "https://orders.example/"}]}
    ordering = await alice.add_monitor(name="Ordering", check=order)
    assert await found(q="orders.ex") == [ordering["id"]]


async def test_pages_hold_still_while_monitors_are_added(alice: Tenant) -> None:
    first = [(await alice.add_monitor(name=f"m{n}"))["id"] for n in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        body = (await alice.client.get("/v1/monitors", params=params)).json()
        seen += [item["id"] for item in body["items"]]
        if len(seen) == 2:
            first.append((await alice.add_monitor(name="late"))["id"])
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert seen == first


async def test_a_forged_cursor_is_refused(alice: Tenant) -> None:
    created = await alice.add_monitor()
    paths = ("/v1/monitors", f"/v1/monitors/{created['id']}/results", "/v1/api-keys", "/v1/members")
    for cursor in ("x", "AAAA", "é", "%00", "A" * 100, "A" * 300, "bm90LWhleA", "-_-_"):
        for path in paths:
            response = await alice.client.get(path, params={"cursor": cursor})
            assert response.status_code == 422, (path, cursor)
            assert response.json()["errors"][0]["field"] == "cursor", (path, cursor)


MULTIPLY = (
    """
    INSERT INTO monitors (id, {columns})
    SELECT gen_random_uuid(), {columns} FROM monitors, generate_series(2, 1000)
    """,
    """
    INSERT INTO monitor_state (monitor_id, organisation_id, status_since, last_result)
    SELECT id, organisation_id, now(), jsonb_build_object('excerpt', repeat('x', 1000)) FROM monitors
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO schedule_periods (id, organisation_id, monitor_id, revision, interval_ms, regions, starts_at)
    SELECT gen_random_uuid(), organisation_id, id, 1, 60000, regions, now() FROM monitors
    ON CONFLICT DO NOTHING
    """,
)


async def test_a_thousand_monitors_are_listed_quickly(alice: Tenant, database: Database) -> None:
    await alice.add_monitor(check=SECRET_CHECK)
    async with database.system() as session:
        columns = ", ".join(column.name for column in Monitor.__table__.columns if column.name != "id")
        for statement in MULTIPLY:
            await session.execute(text(statement.format(columns=columns)))
    durations = []
    for _ in range(5):
        started = time.perf_counter()
        response = await alice.client.get("/v1/monitors", params={"limit": 1000})
        durations.append(time.perf_counter() - started)
        assert len(response.json()["items"]) == 1000
    print(f"1,000 monitors in {min(durations) * 1000:.0f} ms")
    assert min(durations) < 5, "a query for each of them would take longer"
