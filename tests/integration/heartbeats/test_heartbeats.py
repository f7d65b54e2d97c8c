"""Heartbeats from the ping over HTTP to the incident, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from shared.contracts.sealing import MASK
from shared.contracts.wire import PingMessage
from shared.db.base import new_id
from shared.db.repositories.heartbeats import store_pings
from shared.domain.heartbeat import Signal
from shared.services.api_keys import Scope
from shared.services.heartbeats import HeartbeatJudge
from shared.services.pings import PingDesk, ReceptionLog
from tests.dice import new_dice
from tests.integration.api.conftest import add_key
from tests.integration.heartbeats.conftest import Installation

MINUTE = 60


async def test_a_heartbeat_is_pending_until_its_first_ping(installation: Installation) -> None:
    created = await installation.add(period_seconds=3600, grace_seconds=300)
    assert (created["status"], created["interval_seconds"]) == ("pending", 3600)
    assert created["heartbeat"]["ping_path"] == f"/ping/{created['heartbeat']['token']}"
    await installation.pass_time(60)
    await installation.ping(created)
    await installation.pass_time(1)
    read = await installation.read(created)
    assert read["status"] == "up"
    assert read["heartbeat"] == created["heartbeat"]
    assert read["next_check_at"] > created["next_check_at"], "it is the deadline of the next ping"
    assert await installation.incidents() == []


async def test_every_word_by_every_method(installation: Installation) -> None:
    statuses = {
        **dict.fromkeys(("", "success", "0"), "up"),
        **dict.fromkeys(("fail", "3", "255"), "down"),
        **dict.fromkeys(("start", "log"), "pending"),
    }
    cases = [(method, word) for method in ("GET", "HEAD", "POST") for word in statuses]
    monitors = [await installation.add() for _ in cases]
    for (method, word), monitor in zip(cases, monitors, strict=True):
        path = monitor["heartbeat"]["ping_path"] + (f"/{word}" if word else "")
        answer = await installation.client.request(method, path, headers={"Authorization": ""})
        assert (answer.status_code, answer.text) == (200, "" if method == "HEAD" else "OK")
    await installation.pass_time(1)
    listed = (await installation.client.get("/v1/monitors")).json()["items"]
    assert [each["status"] for each in listed] == [statuses[word] for _, word in cases]


async def test_what_is_no_ping_is_refused(installation: Installation) -> None:
    monitor = await installation.add()
    path = monitor["heartbeat"]["ping_path"]
    paths = [
        "/ping/unknown",
        path[:-1],
        f"{path}x",
        f"{path}/256",
        f"{path}/-1",
        f"{path}/stop",
        "/ping/" + "x" * 500,
    ]
    answers = [await installation.client.get(each) for each in paths]
    assert [answer.status_code for answer in answers] == [404] * len(paths)
    assert len({answer.text for answer in answers}) == 1
    assert (await installation.client.get(path, params={"rid": "a b"})).status_code == 400
    await installation.client.delete(f"/v1/monitors/{monitor['id']}")
    assert (await installation.client.get(path)).status_code == 404, "at once"


async def test_cron_02_overlapping_runs_with_ids(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=3600, grace_seconds=5 * MINUTE)
    await installation.ping(monitor, "start", rid="A")
    await installation.pass_time(MINUTE)
    await installation.ping(monitor, "start", rid="B")
    await installation.pass_time(MINUTE)
    await installation.ping(monitor, rid="A")
    await installation.pass_time(4 * MINUTE - 1)
    assert (await installation.read(monitor))["status"] == "up"
    await installation.pass_time(1)
    assert (await installation.read(monitor))["status"] == "down"
    await installation.pass_time(2 * MINUTE)
    await installation.ping(monitor, rid="B")
    await installation.pass_time(1)
    assert (await installation.read(monitor))["status"] == "up"

    ended_a, late_b, ended_b = await installation.results(monitor)
    assert (ended_a["status"], ended_a["timings_ms"]["total"]) == ("up", 120_000)
    assert (late_b["status"], late_b["error"]["kind"]) == ("down", "timeout")
    assert late_b["error"]["message"].startswith("run B ")
    assert (ended_b["status"], ended_b["timings_ms"]["total"]) == ("up", 7 * 60_000)
    assert [incident.state for incident in await installation.incidents()] == ["resolved"]


async def test_cron_02_overlapping_runs_without_ids(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=3600, grace_seconds=5 * MINUTE)
    for word in ("start", "start", "success"):
        await installation.ping(monitor, word)
        await installation.pass_time(MINUTE)
    await installation.pass_time(20 * MINUTE)
    assert (await installation.read(monitor))["status"] == "up"
    (result,) = await installation.results(monitor)
    assert result["timings_ms"]["total"] == 60_000


async def test_cron_02_a_failure_is_told_at_once(installation: Installation) -> None:
    monitor = await installation.add()
    await installation.ping(monitor, "7")
    await installation.pass_time(0.5)
    assert (await installation.read(monitor))["status"] == "down"
    (incident,) = await installation.incidents()
    assert (incident.state, incident.cause) == ("open", "assertion_failed")
    assert "exit code 7" in incident.message
    await installation.ping(monitor)
    await installation.pass_time(0.5)
    assert [incident.state for incident in await installation.incidents()] == ["resolved"]


async def test_a_missing_ping_is_an_incident_that_says_what_was_expected(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=600, grace_seconds=60)
    await installation.ping(monitor)
    await installation.pass_time(659)
    assert (await installation.read(monitor))["status"] == "up"
    await installation.pass_time(2)
    read = await installation.read(monitor)
    assert read["status"] == "down"
    assert "no ping since" in read["last_result"]["error"]["message"]
    for _ in range(3):
        await installation.pass_time(700)
    assert [incident.state for incident in await installation.incidents()] == ["open"], "one outage, one incident"


async def test_a_job_that_never_ran_is_told_too(installation: Installation) -> None:
    monitor = await installation.add(cron="* * * * *", period_seconds=None, grace_seconds=60)
    await installation.pass_time(200)
    assert (await installation.read(monitor))["status"] == "down"
    (incident,) = await installation.incidents()
    assert "no ping yet" in incident.message


IMPOSSIBLE: list[dict[str, Any]] = [
    {"cron": "0 0 31 2 *", "period_seconds": None},
    {"cron": "", "period_seconds": None},
    {"cron": "* " * 5000, "period_seconds": None},
    {"cron": "0 0 * * *"},
    {"period_seconds": None},
    {"period_seconds": 1},
    {"timezone": "Mars/Olympus"},
    {"grace_seconds": 0},
]


async def test_cron_03_an_impossible_heartbeat_is_refused(installation: Installation) -> None:
    for check in IMPOSSIBLE:
        body = {"name": "x", "check": {"kind": "heartbeat", "period_seconds": 60, **check}}
        answer = await installation.client.post("/v1/monitors", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"].startswith("check")


async def test_pings_that_could_not_be_received_prove_nothing(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=600, grace_seconds=60)
    await installation.ping(monitor)
    await installation.pass_time(590)
    await installation.pass_time(120, receiving=False)
    read = await installation.read(monitor)
    assert read["status"] == "unknown"
    (_, unreceived) = await installation.results(monitor)
    assert (unreceived["status"], unreceived["error"]["kind"]) == ("missed", "worker_gap")
    assert await installation.incidents() == []
    await installation.pass_time(540)
    assert (await installation.read(monitor))["status"] == "unknown", (
        "judged again when a whole period was received"
    )
    await installation.pass_time(20)
    assert (await installation.read(monitor))["status"] == "down"
    assert len(await installation.incidents()) == 1


async def test_after_an_outage_of_ours_the_next_ping_tells(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=600, grace_seconds=60)
    await installation.ping(monitor)
    await installation.pass_time(10)
    await installation.pass_time(3600, receiving=False)
    assert (await installation.read(monitor))["status"] == "unknown"
    await installation.ping(monitor)
    await installation.pass_time(1)
    assert (await installation.read(monitor))["status"] == "up"
    assert await installation.incidents() == []


async def test_a_span_of_reception_ends_where_pings_were_refused(installation: Installation) -> None:
    clock, database = installation.clock, installation.database
    desk = PingDesk(database, clock)
    log = ReceptionLog(database, desk, clock)

    async def spans() -> int:
        async with database.system() as session:
            return int((await session.execute(text("SELECT count(*) FROM heartbeat_receivers"))).scalar_one())

    before = await spans()
    for _ in range(3):
        await log.note()
        clock.advance(2)
    assert await spans() == before + 1
    desk.refused += 1
    await log.note()
    assert await spans() == before + 2
    clock.advance(60)
    await log.note()
    assert await spans() == before + 3


async def test_judges_race_for_a_hundred_rounds_and_there_is_one_incident_each(installation: Installation) -> None:
    chance = new_dice()
    hashes = await installation.add_many(100)
    judges = [HeartbeatJudge(installation.database, installation.clock) for _ in range(3)]
    failures = 0
    for hash_of_token in chance.sample(hashes, 100):
        await installation.receive_for(1.0)
        if chance.random() < 0.5:  # else its deadline passes in one of the rounds
            failures += 1
            ping = PingMessage(new_id(), hash_of_token, installation.clock.now_ms(), Signal.FAIL)
            async with installation.database.system() as session:
                await store_pings(session, [ping])
        await asyncio.gather(*(judge.judge_once() for judge in judges))
    found = await installation.incidents()
    assert len(found) == 100
    assert len({incident.monitor_id for incident in found}) == 100
    assert {incident.state for incident in found} == {"open"}
    async with installation.database.system() as session:
        known = await session.execute(
            text("SELECT count(*) FROM heartbeats WHERE state->>'last_failure_ms' <> '-1'")
        )
    assert known.scalar_one() == failures, "no judge has written over what another one knew"


async def test_the_output_of_a_job_is_kept_bounded_and_without_secrets(installation: Installation) -> None:
    monitor = await installation.add()
    path, token = monitor["heartbeat"]["ping_path"], monitor["heartbeat"]["token"]
    await installation.client.post(f"{path}/log", content=b"step 1 \x00 done")
    body = b"curl https://u:hunter2@shop.example/" + token.encode() + b"\xff" + b"x" * 3_000_000
    answer = await installation.client.post(f"{path}/1", content=body)
    assert (answer.status_code, answer.text) == (200, "OK"), "an output that is too long is a ping all the same"
    await installation.pass_time(1)
    (result,) = await installation.results(monitor)
    kept = result["evidence"]["body"]
    assert kept.startswith("step 1 ")
    assert "hunter2" not in kept
    assert token not in kept
    assert len(kept) <= 10_000


async def test_notif_03_the_token_is_for_those_who_may_write(
    installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    monitor = await installation.add()
    token = monitor["heartbeat"]["token"]
    key = await add_key(installation.database, installation.organisation_id, Scope.READ)
    headers = {"Authorization": f"Bearer {key}"}
    read = await installation.client.get(f"/v1/monitors/{monitor['id']}", headers=headers)
    listed = await installation.client.get("/v1/monitors", headers=headers)
    assert read.json()["heartbeat"] == {"token": MASK, "ping_path": f"/ping/{MASK}"}
    assert token not in listed.text
    await installation.ping(monitor, "fail")
    await installation.client.get(f"/ping/{token}/256")
    await installation.pass_time(1)
    async with installation.database.system() as session:
        tables = [
            "heartbeats",
            "heartbeat_pings",
            "check_results",
            "incidents",
            "monitors",
            "monitor_state",
            "outbox",
        ]
        for table in tables:
            rows = await session.execute(text(f"SELECT t::text FROM {table} AS t"))
            assert token not in "".join(rows.scalars()), table
    seen = capfd.readouterr()
    assert token not in seen.out + seen.err


async def test_a_paused_heartbeat_expects_nothing_and_keeps_its_address(installation: Installation) -> None:
    monitor = await installation.add(period_seconds=60, grace_seconds=10)
    path = f"/v1/monitors/{monitor['id']}"
    await installation.client.post(f"{path}/pause")
    await installation.ping(monitor, "fail")
    await installation.pass_time(3600)
    assert (await installation.read(monitor))["status"] == "paused"
    assert await installation.results(monitor) == []
    await installation.client.post(f"{path}/resume")
    await installation.pass_time(65)
    read = await installation.read(monitor)
    assert (read["status"], read["heartbeat"]) == ("pending", monitor["heartbeat"])
    await installation.pass_time(10)
    assert (await installation.read(monitor))["status"] == "down"


async def test_a_heartbeat_is_not_run(installation: Installation) -> None:
    monitor = await installation.add()
    now = await installation.client.post(f"/v1/monitors/{monitor['id']}/check")
    preview = await installation.client.post("/v1/checks", json={"check": monitor["check"]})
    assert (now.status_code, preview.status_code) == (422, 422)
    assert "reports by itself" in now.text
    async with installation.database.system() as session:
        assert (await session.execute(text("SELECT count(*) FROM schedule_periods"))).scalar_one() == 0


async def test_a_monitor_may_become_a_heartbeat_and_back(installation: Installation) -> None:
    body = {"name": "x", "check": {"kind": "http", "url": "https://shop.example/"}}
    monitor = (await installation.client.post("/v1/monitors", json=body)).json()
    path = f"/v1/monitors/{monitor['id']}"
    assert monitor["heartbeat"] is None
    changed = (
        await installation.client.patch(path, json={"check": {"kind": "heartbeat", "period_seconds": 60}})
    ).json()
    await installation.ping(changed)
    await installation.pass_time(1)
    assert (await installation.read(changed))["status"] == "up"
    back = await installation.client.patch(path, json={"check": body["check"]})
    assert back.json()["heartbeat"] is None
    assert (await installation.client.get(changed["heartbeat"]["ping_path"])).status_code == 404
    await installation.pass_time(3600)
    assert await installation.incidents() == []


async def test_pings_at_once_are_all_stored(installation: Installation) -> None:
    monitors = [await installation.add() for _ in range(5)]
    paths = [f"{monitor['heartbeat']['ping_path']}/log" for monitor in monitors] * 40
    answers = await asyncio.gather(*(installation.client.get(path, timeout=60) for path in paths))
    assert {answer.status_code for answer in answers} == {200}
    async with installation.database.system() as session:
        assert (await session.execute(text("SELECT count(*) FROM heartbeat_pings"))).scalar_one() == len(paths)
