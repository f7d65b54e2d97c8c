"""Whom a failure is blamed on: the target, a parent that is down, or the worker that saw it."""

from __future__ import annotations

from uuid import UUID

import pytest

from shared.db.session import Database
from shared.services.errors import InvalidInputError
from tests.integration.db.tenants import add_organisation
from tests.integration.path.scene import Scene, make_scene


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


async def all_say(scene: Scene, monitor_ids: list[UUID], letter: str, worker: str = "w1") -> None:
    """Results of one slot, in one batch."""
    await scene.record(scene.result(monitor_id, letter, worker=worker) for monitor_id in monitor_ids)


async def settle(scene: Scene, seconds: float = 7.0) -> None:
    """Let every alert that waits be decided."""
    for _ in range(round(seconds * 4)):
        await scene.sweep(0.25)


async def test_a_thousand_monitors_that_fail_behind_one_worker_are_one_incident(scene: Scene) -> None:
    monitor_ids = await scene.monitors(1000)
    await all_say(scene, monitor_ids, "S")
    for letter, told in (("F", ["opened"]), ("F", []), ("S", ["resolved"]), ("S", [])):
        scene.clock.advance(10)
        await all_say(scene, monitor_ids, letter)
        await settle(scene)
        assert await scene.told() == told
    (platform,) = await scene.incidents("platform")
    assert (platform.organisation_id, platform.worker, platform.cause) == (
        scene.organisation_id,
        "w1",
        "mass_failure",
    )
    assert "1000 monitors" in platform.message
    incidents = await scene.incidents()
    assert {(row.affected_by, row.silent, row.state) for row in incidents} == {(platform.id, True, "resolved")}
    assert len(incidents) == 1000


async def test_thirty_of_a_thousand_that_really_fail_are_thirty_incidents(scene: Scene) -> None:
    monitor_ids = await scene.monitors(1000)
    failing = monitor_ids[100:130]
    await all_say(scene, monitor_ids, "S")
    scene.clock.advance(10)
    letters = {monitor_id: "F" if monitor_id in failing else "S" for monitor_id in monitor_ids}
    await scene.record(scene.result(each, letter, worker="w1") for each, letter in letters.items())
    assert await scene.told() == ["opened"] * 30
    await settle(scene)
    assert (await scene.told(), await scene.incidents("platform")) == ([], [])
    assert {row.monitor_id for row in await scene.incidents()} == set(failing)


async def test_the_thirty_are_told_of_too_when_their_results_come_before_those_of_the_others(scene: Scene) -> None:
    monitor_ids = await scene.monitors(300)
    await all_say(scene, monitor_ids[:30], "F")
    assert await scene.told() == []
    await scene.sweep(0.5)
    await all_say(scene, monitor_ids[30:], "S")
    await settle(scene)
    assert (await scene.told(), await scene.incidents("platform")) == (["opened"] * 30, [])


async def test_failures_that_trickle_in_join_the_incident_of_their_worker(scene: Scene) -> None:
    monitor_ids = await scene.monitors(60)
    for start in range(0, 60, 5):
        await all_say(scene, monitor_ids[start : start + 5], "F")
        await scene.sweep(0.5)
    await settle(scene)
    assert await scene.told() == ["opened"]
    late = await scene.monitor()
    scene.clock.advance(70)
    await all_say(scene, [late], "F")
    await settle(scene)
    assert await scene.told() == []
    assert len({row.affected_by for row in await scene.incidents()}) == 1


async def test_all_workers_of_a_region_make_the_region_the_suspect(scene: Scene) -> None:
    workers = {name: await scene.monitors(20) for name in ("w1", "w2")}
    for name, monitor_ids in workers.items():
        await all_say(scene, monitor_ids, "F", worker=name)
    await settle(scene)
    (platform,) = await scene.incidents("platform")
    assert (platform.worker, platform.region, await scene.told()) == ("", "default", ["opened"])
    assert {row.affected_by for row in await scene.incidents()} == {platform.id}


async def test_another_worker_that_sees_the_world_is_believed_meanwhile(scene: Scene) -> None:
    blind, seeing = await scene.monitors(20), await scene.monitors(20)
    await all_say(scene, blind, "F", worker="w1")
    await settle(scene)
    assert await scene.told() == ["opened"]
    letters = "F" + "S" * 19
    await scene.record(
        scene.result(each, letter, worker="w2") for each, letter in zip(seeing, letters, strict=True)
    )
    await settle(scene)
    assert await scene.told() == ["opened"]
    assert [row.affected_by for row in await scene.incidents() if row.monitor_id == seeing[0]] == [None]


async def test_what_still_fails_when_the_worker_sees_again_is_told_then(scene: Scene) -> None:
    monitor_ids = await scene.monitors(40)
    await all_say(scene, monitor_ids, "F")
    await settle(scene)
    scene.clock.advance(5)
    await all_say(scene, monitor_ids[4:], "S")
    await settle(scene)
    assert await scene.told() == ["opened", "resolved"]
    scene.clock.advance(5)
    await all_say(scene, monitor_ids[:4], "F")
    assert await scene.told() == ["opened"] * 4
    await all_say(scene, monitor_ids, "F")
    assert await scene.told() == []


@pytest.mark.parametrize(
    ("others", "told"),
    [("S", ["resolved", *["opened"] * 30]), ("F", ["opened"])],
    ids=["it sees", "it is blind too, so the region is suspected"],
)
async def test_a_suspect_that_is_gone_is_judged_by_what_its_successor_sees(
    scene: Scene, others: str, told: list[str]
) -> None:
    failing, well = await scene.monitors(30), await scene.monitors(60)
    await all_say(scene, well, "S", worker="w1")
    scene.clock.advance(5)
    await all_say(scene, failing, "F", worker="w1")
    await settle(scene)
    assert await scene.told() == ["opened"]
    for _ in range(8):
        scene.clock.advance(10)
        await all_say(scene, failing, "F", worker="w2")
        await all_say(scene, well, others, worker="w2")
        await settle(scene, 1)
    assert await scene.told() == told


async def test_a_lone_monitor_waits_a_second_and_is_told(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await all_say(scene, [monitor_id], "F")
    assert await scene.sweep(0.9) == 0
    assert await scene.told() == []
    assert await scene.sweep(0.2) == 1
    assert await scene.told() == ["opened"]
    (incident,) = await scene.incidents()
    assert (incident.held, incident.silent) == (False, False)


async def test_a_lone_monitor_that_flaps_reopens_its_incident(scene: Scene) -> None:
    monitor_id = await scene.monitor(flap_window_seconds=60)
    for expected in ("opened", "reopened", "reopened"):
        await all_say(scene, [monitor_id], "F")
        assert await scene.sweep(0.5) == 0
        assert await scene.sweep(0.6) == 1
        assert await scene.told() == [expected]
        await scene.say(monitor_id, "S", worker="w1")
        assert await scene.told() == ["resolved"]
        scene.clock.advance(5)
    assert len(await scene.incidents()) == 1


async def test_an_outage_that_is_over_before_it_was_told_is_told_with_its_end(scene: Scene) -> None:
    monitor_id = await scene.monitor()
    await all_say(scene, [monitor_id], "F")
    scene.clock.advance(0.2)
    await all_say(scene, [monitor_id], "S")
    assert await scene.told() == []
    await settle(scene)
    assert await scene.told() == ["opened", "resolved"]


@pytest.mark.parametrize("first", ["parent", "child"])
async def test_a_child_is_not_paged_for_while_its_parent_is_down(scene: Scene, first: str) -> None:
    parent = await scene.monitor()
    child = await scene.monitor(parents=[str(parent)])
    for monitor_id in (parent, child):
        await scene.say(monitor_id, "S")
    for monitor_id in (parent, child) if first == "parent" else (child, parent):
        scene.clock.advance(1)
        await scene.record([scene.result(monitor_id, "F")])
        await scene.sweep(0.25)
    assert await scene.told() == ["opened"]
    of = {row.monitor_id: row for row in await scene.incidents()}
    assert (of[child].affected_by, of[child].silent) == (of[parent].id, True)
    await scene.say(child, "FF")
    await scene.say(parent, "F")
    await settle(scene, 70)
    assert await scene.told() == []


@pytest.mark.parametrize(("letter", "expected"), [("F", ["opened"]), ("S", [])], ids=["still failing", "recovered"])
async def test_a_child_is_judged_again_when_its_parent_recovers(
    scene: Scene, letter: str, expected: list[str]
) -> None:
    parent = await scene.monitor()
    child = await scene.monitor(parents=[str(parent)])
    for monitor_id in (parent, child):
        await scene.say(monitor_id, "F")
        await scene.sweep(0.25)
    await scene.say(parent, "S")
    assert await scene.told() == ["opened", "resolved"]
    # A check that ran while the parent was still down says nothing about the time since.
    await scene.record([scene.result(child, "F", slot_ms=scene.clock.now_ms() - 1)])
    assert await scene.told() == []
    await scene.say(child, letter)
    assert await scene.told() == expected
    await scene.say(child, "S")
    assert await scene.told() == (["resolved"] if expected else [])


async def test_a_child_that_fails_alone_is_told_as_soon_as_its_parent_was_seen_well(scene: Scene) -> None:
    parent = await scene.monitor()
    child = await scene.monitor(parents=[str(parent)])
    await scene.say(child, "F")
    assert await scene.sweep(1) == 0
    await scene.say(parent, "S")
    assert await scene.sweep() == 1
    assert await scene.told() == ["opened"]


async def test_a_child_waits_for_a_parent_that_nobody_looks_at_no_longer_than_it_has_to(scene: Scene) -> None:
    parent = await scene.monitor(interval_seconds=20)
    child = await scene.monitor(parents=[str(parent)])
    await scene.say(child, "F")
    assert await scene.sweep(29.9) == 0
    assert await scene.sweep(0.2) == 1
    assert await scene.told() == ["opened"]


async def test_a_parent_that_is_down_in_maintenance_explains_its_children(scene: Scene) -> None:
    parent = await scene.monitor()
    await scene.maintain(0, 100)
    await scene.say(parent, "F")
    child = await scene.monitor(parents=[str(parent)])
    await scene.rows(
        "UPDATE maintenance_occurrences SET all_monitors = false, monitor_ids = ARRAY[CAST(:id AS uuid)]"
        " RETURNING 1",
        id=parent,
    )
    await scene.say(child, "F")
    assert await scene.sweep(70) == 0
    scene.clock.advance(30)
    await scene.reconsider(parent)
    await scene.sweep()
    assert await scene.told() == ["opened"]
    assert len({row.affected_by for row in await scene.incidents()}) == 2


async def test_monitors_do_not_depend_on_each_other_in_a_circle(scene: Scene) -> None:
    a = await scene.monitor()
    b = await scene.monitor(parents=[str(a)])
    c = await scene.monitor(parents=[str(b)])
    for child, parents in ((a, [a]), (a, [b]), (a, [c])):
        async with scene.database.tenant(scene.organisation_id) as session:
            with pytest.raises(InvalidInputError, match=f"in a circle: {a} -> .*{a}"):
                await scene.service.change(session, child, {"parents": [str(each) for each in parents]}, None)
            await session.rollback()
    with pytest.raises(InvalidInputError, match="there is no monitor"):
        await scene.monitor(parents=[str(UUID(int=5))])


async def test_a_deleted_parent_is_no_parent_any_more(scene: Scene) -> None:
    parent = await scene.monitor()
    child = await scene.monitor(parents=[str(parent)])
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.service.delete(session, parent)
    ((parents, revision),) = await scene.rows("SELECT parents, revision FROM monitors WHERE id = :id", id=child)
    assert (parents, revision) == ([], 2)
