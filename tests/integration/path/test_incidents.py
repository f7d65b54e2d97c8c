"""From results to incidents and to what people are told: once each, and nothing that was not announced."""

from __future__ import annotations

import pytest

from shared.db.session import Database
from shared.domain.clock import to_datetime
from tests.integration.db.tenants import add_organisation
from tests.integration.path.scene import INTERVAL_MS, Scene, make_scene


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


async def test_state_03_the_end_is_told_only_of_what_was_told_to_begin(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=3, flap_window_seconds=0)
    for letters, expected in (
        ("FFS", []),
        ("FFFFS", ["opened", "resolved"]),
        ("FS", []),
        ("FFFS", ["opened", "resolved"]),
    ):
        await scene.say(monitor_id, letters)
        assert await scene.told() == expected, letters
    assert len(await scene.incidents()) == 2


async def test_an_incident_holds_times_cause_and_evidence(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=2)
    start = scene.clock.now_ms()
    await scene.say(monitor_id, "SFFFS", worker="w1")
    await scene.sweep(2)
    (incident,) = await scene.incidents()
    moments = [to_datetime(start + slot * INTERVAL_MS) for slot in range(6)]
    assert (incident.started_at, incident.opened_at) == (moments[2], moments[3])
    assert (incident.last_failure_at, incident.resolved_at) == (moments[4], moments[5])
    assert (incident.cause, incident.message, incident.severity) == ("connect_refused", "nothing listens", "down")
    assert (incident.worker, incident.region, incident.resolved_by) == ("w1", "default", None)
    assert incident.first_result["scheduled_at"] < incident.last_result["scheduled_at"]
    assert await scene.history(monitor_id) == [
        ("pending", 0, 10),
        ("up", 10, 20),
        ("down", 20, 50),
        ("up", 50, None),
    ]


async def test_all_of_it_in_one_batch_is_told_all_the_same(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=3, flap_window_seconds=0)
    start = scene.clock.now_ms()
    scene.clock.advance(3600)
    await scene.record(
        scene.result(monitor_id, letter, slot_ms=start + slot * INTERVAL_MS)
        for slot, letter in enumerate("FFSFFFFSFSFFFS", 1)
    )
    assert await scene.told() == ["opened", "resolved", "opened", "resolved"]
    assert [status for status, *_ in await scene.history(monitor_id)] == [
        "pending",
        "up",
        "down",
        "up",
        "down",
        "up",
    ]


async def test_a_failure_soon_after_a_recovery_reopens_the_incident(scene: Scene) -> None:
    monitor_id = await scene.monitor(flap_window_seconds=30)
    await scene.say(monitor_id, "FS FS")
    assert await scene.told() == ["opened", "resolved", "reopened", "resolved"]
    await scene.say(monitor_id, "SSS F")
    assert await scene.told() == ["opened"]
    first, second = await scene.incidents()
    assert (first.reopened, first.state, second.reopened, second.state) == (1, "resolved", 0, "open")


async def test_degraded_is_an_incident_of_its_own_severity(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "SGG")
    assert await scene.told() == ["opened"]
    await scene.say(monitor_id, "FF")
    assert await scene.told() == ["opened"]
    (incident,) = await scene.incidents()
    assert (incident.severity, incident.cause) == ("down", "connect_refused")
    await scene.say(monitor_id, "G")
    assert await scene.told() == ["resolved", "opened"]
    await scene.say(monitor_id, "S")
    assert await scene.told() == ["resolved"]
    assert [(row.severity, row.state) for row in await scene.incidents()] == [
        ("down", "resolved"),
        ("degraded", "resolved"),
    ]


@pytest.mark.parametrize("how", ["paused", "deleted"])
async def test_a_monitor_that_nobody_watches_any_more_has_no_open_incident(scene: Scene, how: str) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "F")
    async with scene.database.tenant(scene.organisation_id) as session:
        change = scene.service.pause if how == "paused" else scene.service.delete
        await change(session, monitor_id)
    assert await scene.told() == ["opened", "resolved"]
    await scene.say(monitor_id, "F", revision=2)
    (incident,) = await scene.incidents()
    assert (incident.state, incident.resolved_by) == ("resolved", how)
    assert await scene.told() == []
    open_spans = await scene.rows("SELECT status FROM state_periods WHERE ends_at IS NULL")
    assert [row[0] for row in open_spans] == (["paused"] if how == "paused" else [])


async def test_a_resumed_monitor_begins_anew(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=2, flap_window_seconds=0)
    await scene.say(monitor_id, "FF")
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.service.pause(session, monitor_id)
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.service.resume(session, monitor_id)
    assert await scene.shown(monitor_id) == "pending"
    assert await scene.told() == ["opened", "resolved"]
    await scene.say(monitor_id, "F", revision=3)
    assert await scene.told() == []
    await scene.say(monitor_id, "F", revision=3)
    assert await scene.told() == ["opened"]


async def test_a_check_that_changed_is_not_judged_by_what_the_old_one_found(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=3)
    await scene.say(monitor_id, "SFF")
    async with scene.database.tenant(scene.organisation_id) as session:
        check = {"kind": "http", "url": "http://b.test/"}
        await scene.service.change(session, monitor_id, {"check": check}, None)
    await scene.say(monitor_id, "FFF", revision=1)
    await scene.say(monitor_id, "FF", revision=2)
    assert (await scene.told(), await scene.shown(monitor_id)) == ([], "up")
    await scene.say(monitor_id, "F", revision=2)
    assert await scene.told() == ["opened"]


@pytest.mark.parametrize("letter", ["m", "i"])
async def test_what_is_no_evidence_leads_to_unknown_and_never_to_down(scene: Scene, letter: str) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "S" + 3 * letter)
    assert await scene.mark_blind() == 0
    scene.clock.advance(11)
    assert await scene.mark_blind() == 1
    assert await scene.shown(monitor_id) == "unknown"
    assert await scene.mark_blind() == 0
    assert await scene.history(monitor_id) == [("pending", 0, 10), ("up", 10, 20), ("unknown", 20, None)]
    await scene.say(monitor_id, "S")
    assert (await scene.shown(monitor_id), await scene.told()) == ("up", [])


async def test_an_incident_stays_open_while_nothing_is_known(scene: Scene) -> None:
    monitor_id = await scene.monitor(failure_threshold=2)
    await scene.say(monitor_id, "FF")
    scene.clock.advance(60)
    await scene.mark_blind()
    assert (await scene.shown(monitor_id), await scene.told()) == ("unknown", ["opened"])
    await scene.say(monitor_id, "F")
    assert (await scene.shown(monitor_id), await scene.told()) == ("down", [])
    scene.clock.advance(60)
    await scene.mark_blind()
    await scene.say(monitor_id, "S")
    assert (await scene.shown(monitor_id), await scene.told()) == ("up", ["resolved"])


async def test_late_results_of_the_blind_time_heal_the_history(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "S")
    start = scene.clock.now_ms()
    scene.clock.advance(100)
    await scene.mark_blind()
    await scene.record(scene.result(monitor_id, "S", slot_ms=start + slot * INTERVAL_MS) for slot in range(1, 10))
    assert await scene.history(monitor_id) == [
        ("pending", 0, 10),
        ("up", 10, 20),
        ("unknown", 20, 20),
        ("up", 20, None),
    ]


async def test_a_heartbeat_and_a_fresh_monitor_are_not_blind(scene: Scene) -> None:
    await scene.monitor(interval_seconds=60)
    await scene.monitor(check={"kind": "heartbeat", "period_seconds": 60})
    scene.clock.advance(180)
    assert await scene.mark_blind() == 0


@pytest.mark.parametrize(
    ("letters", "expected", "incidents"),
    [
        (("SF", "S", ""), ["resolved"], 1),
        (("SF", "FF", "F"), [], 1),
        (("SS", "FF", "F"), ["opened"], 1),
        (("SS", "FS", "S"), [], 0),
        (("SG", "FF", ""), ["opened"], 1),
        (("SF", "SF", ""), [], 1),
    ],
    ids=["a recovered", "b still down", "c began", "d came and went", "got worse", "came back and failed again"],
)
async def test_at_the_end_of_maintenance_truth_is_compared_with_what_was_announced(
    scene: Scene, letters: tuple[str, str, str], expected: list[str], incidents: int
) -> None:
    before, inside, after = letters
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, before)
    await scene.told()
    await scene.maintain(1, 100)
    scene.clock.advance(1)
    await scene.reconsider(monitor_id)
    assert await scene.shown(monitor_id) == "maintenance"
    await scene.say(monitor_id, inside)
    assert (await scene.told(), await scene.shown(monitor_id)) == ([], "maintenance")
    scene.clock.advance(110)
    await scene.reconsider(monitor_id)
    await scene.say(monitor_id, after)
    assert await scene.told() == expected
    assert len(await scene.incidents()) == incidents
    spans = [(start, end) for status, start, end in await scene.history(monitor_id) if status == "maintenance"]
    assert spans == [(21, 120)]


async def test_a_window_that_nobody_announced_yet_is_respected_and_one_that_ended_is_over(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "S")
    await scene.maintain(1, 25)
    await scene.say(monitor_id, "F")
    assert (await scene.told(), await scene.shown(monitor_id)) == ([], "maintenance")
    await scene.say(monitor_id, "FF")
    assert (await scene.told(), await scene.shown(monitor_id)) == (["opened"], "down")
    assert [status for status, *_ in await scene.history(monitor_id)] == ["pending", "up", "maintenance", "down"]


async def test_a_window_that_is_deleted_while_it_is_open_ends_now(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "S")
    await scene.maintain(1, 1000)
    await scene.say(monitor_id, "F")
    await scene.rows("DELETE FROM maintenance_occurrences RETURNING 1")
    await scene.reconsider(monitor_id)
    assert (await scene.told(), await scene.shown(monitor_id)) == (["opened"], "down")
    await scene.reconsider(monitor_id)
    assert await scene.told() == []


async def test_two_regions_of_three_open_one_incident(scene: Scene) -> None:
    monitor_id = await scene.monitor(regions=["a", "b", "c"])
    for letters, expected in (("SSS", []), ("FSS", []), ("FFS", ["opened"]), ("SFS", ["resolved"])):
        scene.clock.advance(10)
        await scene.record(
            scene.result(monitor_id, letter, region=region) for region, letter in zip("abc", letters, strict=True)
        )
        assert await scene.told() == expected, letters


async def test_the_database_itself_allows_one_open_incident_per_monitor(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.say(monitor_id, "F")
    copy = """
        INSERT INTO incidents (id, organisation_id, monitor_id, kind, state, severity, cause, message, started_at,
            opened_at, last_failure_at)
        SELECT gen_random_uuid(), organisation_id, monitor_id, kind, state, severity, cause, message, started_at,
            opened_at, last_failure_at FROM incidents RETURNING id
    """
    with pytest.raises(Exception, match="uq_incidents_open_monitor"):
        await scene.rows(copy)


async def test_results_of_a_clock_that_is_far_ahead_do_not_silence_the_others(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await scene.record([scene.result(monitor_id, "S", slot_ms=scene.clock.now_ms() + 3_600_000)])
    await scene.say(monitor_id, "F")
    assert await scene.told() == ["opened"]
