"""Certificates under races, crashes and floods: each is stored once, and what is kept of them is bounded."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.repositories.certificates import KEPT
from shared.db.session import Database
from shared.domain.clock import to_datetime
from shared.services.certificates import CertificateWatch
from shared.testing.tocsin import eventually
from tests.integration.db.tenants import add_organisation
from tests.integration.path.certificates import OTHER, SSL, TOLD, UP, Viewer, certificate, reporting
from tests.integration.path.scene import Scene, make_scene

_WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


async def test_two_recorders_that_see_it_at_once_report_it_once(
    scene: Scene, viewer: Viewer, other: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_ids = [await scene.monitor(check=check) for _ in range(8)]
    for ders in ([certificate()], [OTHER["key"]]):
        batches = [
            [viewer.result(each, check, ders[0]) for each in order] for order in (monitor_ids, monitor_ids[::-1])
        ]
        found = await asyncio.gather(viewer.record(batches[0]), other.record(batches[1]))
        wanted = ("degraded", TOLD["key"]) if ders[0] is OTHER["key"] else UP
        assert list(found) == [[wanted] * 8] * 2
    for each in monitor_ids:
        assert [row.accepted_at is None for row in await viewer.known(each)] == [False, True]
    assert await scene.told() == ["opened"] * 8


async def somebody_waits(scene: Scene) -> None:
    async def waits() -> bool:
        return bool(await scene.rows(_WAITING))

    await eventually("a transaction waits for another", waits)


async def test_a_recorder_waits_for_one_that_is_just_storing_it(
    scene: Scene, viewer: Viewer, other: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    async with scene.database.system() as session:
        await viewer.watch.judge(session, [viewer.result(monitor_id, check, OTHER["key"])], scene.clock.now_ms())
        second = asyncio.create_task(other.look(monitor_id, check, OTHER["key"]))
        await somebody_waits(scene)
    assert await second == ("degraded", TOLD["key"])
    assert len(await viewer.known(monitor_id)) == 2


async def test_of_two_first_certificates_at_once_only_one_is_accepted_unasked(
    scene: Scene, viewer: Viewer, other: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    async with scene.database.system() as session:
        await viewer.watch.judge(session, [viewer.result(monitor_id, check, certificate())], scene.clock.now_ms())
        second = asyncio.create_task(other.look(monitor_id, check, OTHER["key"]))
        await somebody_waits(scene)
    assert await second == ("degraded", TOLD["key"])
    assert [row.accepted_at is None for row in await viewer.known(monitor_id)] == [False, True]


async def test_two_recorders_never_wait_for_each_other(scene: Scene, viewer: Viewer, other: Viewer) -> None:
    low, high = sorted([await scene.monitor(check=SSL), await scene.monitor(check=SSL)])
    der = certificate()
    async with scene.database.system() as session:
        await viewer.watch.judge(session, [viewer.result(low, SSL, der)], scene.clock.now_ms())
        second = asyncio.create_task(other.record([other.result(each, SSL, der) for each in (high, low)]))
        await somebody_waits(scene)
        await viewer.watch.judge(session, [viewer.result(high, SSL, der)], scene.clock.now_ms())
    assert await second == [UP, UP]


async def test_what_was_rolled_back_is_not_remembered(scene: Scene, viewer: Viewer) -> None:
    monitor_id = await scene.monitor(check=SSL)
    der = certificate()

    async def be_killed_in_between() -> None:
        async with scene.database.system() as session:
            await viewer.watch.judge(session, [viewer.result(monitor_id, SSL, der)], scene.clock.now_ms())
            raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await be_killed_in_between()
        assert await viewer.known(monitor_id) == []
    await viewer.look(monitor_id, SSL, der)
    assert len(await viewer.known(monitor_id)) == 1


async def test_known_certificates_cost_no_query_and_bounded_memory(scene: Scene) -> None:
    viewer = Viewer(scene, scene.database, CertificateWatch(remembered=2))
    monitor_ids = [await scene.monitor(check=SSL) for _ in range(3)]
    der = certificate()
    first, second, third = monitor_ids
    # The first look stores it, the second reads it back; the first monitor is looked at again last but one.
    for each in (first, first, second, second, first, third, third):
        await viewer.look(each, SSL, der)
    no_session = cast("AsyncSession", None)
    known = [viewer.result(each, SSL, der) for each in (first, third)]
    assert await viewer.watch.judge(no_session, known, scene.clock.now_ms()) is known
    with pytest.raises(AttributeError):
        await viewer.watch.judge(no_session, [viewer.result(second, SSL, der)], scene.clock.now_ms())


async def test_the_newest_hundred_are_kept_and_the_accepted_one_among_them(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "issuer")
    monitor_id, untouched = await scene.monitor(check=check), await scene.monitor(check=check)
    own = certificate()
    for each in (untouched, monitor_id):
        await viewer.look(each, check, own)
    foreign = [certificate(issuer="two") for _ in range(KEPT + 3)]
    messages = [viewer.result(monitor_id, check, der) for der in foreign]
    for part in (messages[:50], messages[50:]):
        assert {status for status, _ in await viewer.record(part)} == {"degraded"}
    rows = await viewer.known(monitor_id)
    assert [row.accepted_at is None for row in rows] == [False] + [True] * KEPT
    assert rows[1].first_seen_at == to_datetime(messages[3].slot_ms)
    assert len(await viewer.known(untouched)) == 1
    assert (await viewer.look(monitor_id, check, certificate(issuer="two")))[0] == "degraded"


async def test_who_edits_the_monitor_does_not_hold_up_results_nor_hide_a_change(
    scene: Scene, viewer: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    async with scene.database.system() as person:
        await person.execute(text("SELECT FROM monitors WHERE id = :id FOR UPDATE"), {"id": monitor_id})
        found = await asyncio.wait_for(viewer.look(monitor_id, check, OTHER["key"]), 20)
        assert found == ("degraded", TOLD["key"])
        assert len(await viewer.known(monitor_id)) == 1
    assert await viewer.look(monitor_id, check, OTHER["key"]) == ("degraded", TOLD["key"])
    assert len(await viewer.known(monitor_id)) == 2


async def test_a_clock_that_is_ahead_does_not_make_a_certificate_the_newest_for_ever(
    scene: Scene, viewer: Viewer
) -> None:
    monitor_id = await scene.monitor(check=SSL)
    async with scene.database.system() as session:
        ahead = viewer.result(monitor_id, SSL, certificate())
        now_ms = ahead.slot_ms - round(timedelta(days=1).total_seconds() * 1000)
        await viewer.watch.judge(session, [ahead], now_ms)
    (row,) = await viewer.known(monitor_id)
    assert row.first_seen_at == to_datetime(now_ms)


async def test_the_certificates_of_a_deleted_monitor_go_with_it(scene: Scene, viewer: Viewer) -> None:
    monitor_id = await scene.monitor(check=SSL)
    await viewer.look(monitor_id, SSL, certificate())
    late = viewer.result(monitor_id, SSL, OTHER["key"])
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.service.delete(session, monitor_id)
    assert await viewer.record([late]) == [UP]
    assert await viewer.known(monitor_id) == []
