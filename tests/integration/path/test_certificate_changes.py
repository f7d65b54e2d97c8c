"""What a new certificate changes is told until somebody accepts it, and an ordinary renewal is told to nobody."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from shared.db.session import Database
from shared.domain.errors import CheckError, ErrorKind
from shared.services.api_keys import Scope, create_key
from shared.services.certificate_turns import HELD_MS
from shared.services.certificates import accept_certificate
from tests.integration.db.tenants import add_organisation
from tests.integration.path.certificates import HTTPS, OTHER, SSL, TCP, TOLD, UP, Viewer, certificate, reporting
from tests.integration.path.scene import INTERVAL_MS, Scene, make_scene

Check = dict[str, Any]
KINDS = ("issuer", "key", "names")


@pytest.fixture
async def scene(database: Database) -> Scene:
    return await make_scene(database, await add_organisation(database, "acme"))


async def accept(scene: Scene, monitor_id: UUID, fingerprint: str) -> None:
    async with scene.database.tenant(scene.organisation_id) as session:
        key, _ = await create_key(
            session, scene.organisation_id, name="ops", scopes=[Scope.WRITE], clock=scene.clock
        )
        await accept_certificate(session, monitor_id, fingerprint, key.id, scene.clock)


@pytest.mark.parametrize("check", [SSL, HTTPS, TCP], ids=["ssl", "https", "tcp"])
async def test_a_renewal_that_changes_nothing_is_told_to_nobody(scene: Scene, viewer: Viewer, check: Check) -> None:
    check = reporting(check, *KINDS)
    monitor_id = await scene.monitor(check=check)
    for der in (certificate(), certificate()):
        assert [await viewer.look(monitor_id, check, der) for _ in range(2)] == [UP, UP]
    assert [(row.changes, row.accepted_at is None, row.accepted_by) for row in await viewer.known(monitor_id)] == [
        ([], False, None)
    ] * 2
    assert await scene.told() == []


@pytest.mark.parametrize("reported", KINDS)
@pytest.mark.parametrize("changed", KINDS)
@pytest.mark.parametrize("check", [SSL, HTTPS, TCP], ids=["ssl", "https", "tcp"])
async def test_only_changes_of_the_kinds_that_were_asked_for_are_reported(
    scene: Scene, viewer: Viewer, check: Check, changed: str, reported: str
) -> None:
    check = reporting(check, reported)
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    found = [await viewer.look(monitor_id, check, OTHER[changed]) for _ in range(2)]
    is_reported = changed == reported
    assert found == ([("degraded", TOLD[changed])] * 2 if is_reported else [UP] * 2)
    first, second = await viewer.known(monitor_id)
    assert (first.accepted_at is None, second.accepted_at is None) == (False, is_reported)
    assert second.changes == [{"kind": changed, "message": TOLD[changed]}]
    assert [(each.cause, each.severity, each.message) for each in await scene.incidents()] == (
        [("tls_changed", "degraded", TOLD[changed])] if is_reported else []
    )


async def test_all_that_changed_is_told_once_one_of_it_is_to_be_reported(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate(names=("a.test", "c.test")))
    found = await viewer.look(monitor_id, check, certificate(issuer="two", key_name="second"))
    assert found == (
        "degraded",
        "the issuer changed from CN=one to CN=two; the key changed; names are gone: c.test",
    )


@pytest.mark.parametrize("check", [SSL, HTTPS, TCP], ids=["ssl", "https", "tcp"])
async def test_without_the_option_changes_are_kept_and_nobody_is_told(
    scene: Scene, viewer: Viewer, check: Check
) -> None:
    monitor_id = await scene.monitor(check=check)
    for der in (certificate(), *OTHER.values()):
        assert await viewer.look(monitor_id, check, der) == UP
    kinds = [[change["kind"] for change in row.changes] for row in await viewer.known(monitor_id)]
    assert kinds == [[], ["issuer"], ["key"], ["names"]]
    assert all(row.accepted_at for row in await viewer.known(monitor_id))
    assert await scene.told() == []


async def test_a_person_accepts_and_that_ends_the_incident_with_the_next_result(
    scene: Scene, viewer: Viewer, other: Viewer
) -> None:
    check = reporting(SSL, *KINDS)
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    await viewer.look(monitor_id, check, OTHER["key"])
    assert (await other.look(monitor_id, check, OTHER["key"]))[0] == "degraded"
    fingerprint = (await viewer.known(monitor_id))[1].fingerprint_sha256
    for _ in range(2):
        await accept(scene, monitor_id, fingerprint)
    for each in (viewer, other):
        assert await each.look(monitor_id, check, OTHER["key"]) == UP
    assert await scene.told() == ["opened", "resolved"]
    assert (await viewer.known(monitor_id))[1].accepted_by == "API key ops"


async def test_two_backends_are_one_incident_and_once_accepted_none(scene: Scene, viewer: Viewer) -> None:
    check = reporting(HTTPS, *KINDS)
    monitor_id = await scene.monitor(check=check)
    backends = (certificate(), OTHER["key"])
    for _ in range(2):
        assert [(await viewer.look(monitor_id, check, der))[0] for der in backends] == ["up", "degraded"]
    assert await scene.told() == ["opened", "resolved", "reopened"]
    for _ in range(3):
        assert [await viewer.look(monitor_id, check, der) for der in backends] == [
            ("degraded", f"{TOLD['key']}; this time an accepted certificate was shown"),
            ("degraded", TOLD["key"]),
        ]
    assert await scene.told() == []
    assert len(await scene.incidents()) == 1
    first, second = await viewer.known(monitor_id)
    await accept(scene, monitor_id, second.fingerprint_sha256)
    for _ in range(3):
        assert [await viewer.look(monitor_id, check, der) for der in backends] == [UP, UP]
    assert await scene.told() == ["resolved"]
    assert [row.changes for row in await viewer.known(monitor_id)] == [first.changes, second.changes]


async def test_backends_that_were_accepted_are_renewed_without_a_word(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "issuer", "names")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    await viewer.look(monitor_id, check, certificate(issuer="two", names=("b.test",)))
    await accept(scene, monitor_id, (await viewer.known(monitor_id))[1].fingerprint_sha256)
    for _ in range(2):
        assert await viewer.look(monitor_id, check, certificate(key_name="second")) == UP
        assert await viewer.look(monitor_id, check, certificate(issuer="two", names=("b.test",))) == UP
    assert await viewer.look(monitor_id, check, certificate(issuer="three")) == (
        "degraded",
        "the issuer changed from CN=two to CN=three",
    )


async def test_an_accepted_certificate_that_is_shown_again_ends_the_incident(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "issuer")
    monitor_id = await scene.monitor(check=check)
    own = certificate()
    seen = [(await viewer.look(monitor_id, check, der))[0] for der in (own, OTHER["issuer"], own)]
    assert seen == ["up", "degraded", "up"]
    assert await scene.told() == ["opened", "resolved"]


async def test_a_certificate_that_came_and_went_ends_its_incident_an_hour_later(
    scene: Scene, viewer: Viewer
) -> None:
    check = reporting(SSL, "issuer")
    monitor_id = await scene.monitor(check=check)
    own = certificate()
    for der in (own, OTHER["issuer"], own, OTHER["issuer"]):
        await viewer.look(monitor_id, check, der)
    scene.clock.advance(HELD_MS / 1000 - 2 * INTERVAL_MS / 1000)
    assert (await viewer.look(monitor_id, check, own))[0] == "degraded"
    assert await viewer.look(monitor_id, check, own) == UP
    assert await scene.told() == ["opened", "resolved", "reopened", "resolved"]


async def test_a_batch_that_is_tried_again_is_no_certificate_that_came_back(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "issuer")
    monitor_id = await scene.monitor(check=check)
    own = certificate()
    await viewer.look(monitor_id, check, own)
    batch = [viewer.result(monitor_id, check, der) for der in (own, OTHER["issuer"])]
    for _ in range(3):
        assert [status for status, _ in await viewer.record(batch)] == ["up", "degraded"]
    assert await viewer.look(monitor_id, check, own) == UP


async def test_regions_that_see_different_backends_keep_nothing_open_for_each_other(
    scene: Scene, viewer: Viewer
) -> None:
    check = reporting(SSL, "issuer")
    monitor_id = await scene.monitor(check=check)
    own = certificate()
    for _ in range(4):
        there = msgspec.structs.replace(viewer.result(monitor_id, check, OTHER["issuer"]), region="there")
        here = viewer.result(monitor_id, check, own)
        found = await viewer.record([here, there] if await viewer.known(monitor_id) else [here])
        assert found[0] == UP


async def test_nobody_accepts_by_showing_two_foreign_certificates(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, "issuer")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    for _ in range(2):
        found = await viewer.look(monitor_id, check, certificate(issuer="two"))
        assert found == ("degraded", TOLD["issuer"])


async def test_what_the_check_refused_is_no_certificate_to_compare_with(scene: Scene, viewer: Viewer) -> None:
    check = reporting(SSL, *KINDS)
    monitor_id = await scene.monitor(check=check)
    portal = CheckError(ErrorKind.TLS_UNTRUSTED, "the root is not trusted")
    for der in (certificate(issuer="portal", key_name="portal"), certificate(issuer="portal", key_name="other")):
        assert (await viewer.look(monitor_id, check, der, error=portal))[0] == "down"
        assert await viewer.look(monitor_id, check, certificate()) == UP
    assert {incident.cause for incident in await scene.incidents()} == {"tls_untrusted"}


async def test_what_is_down_stays_down_and_its_certificate_is_kept(scene: Scene, viewer: Viewer) -> None:
    check = reporting(HTTPS, *KINDS)
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    assert (await viewer.look(monitor_id, check, OTHER["key"], status_code=500))[0] == "down"
    assert (await viewer.known(monitor_id))[1].accepted_at is None
    assert await viewer.look(monitor_id, check, OTHER["key"]) == ("degraded", TOLD["key"])


async def test_certificates_of_one_batch_are_taken_in_the_order_of_their_slots(
    scene: Scene, viewer: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    messages = [viewer.result(monitor_id, check, der) for der in (certificate(), OTHER["names"], OTHER["key"])]
    found = await viewer.record(messages[::-1])
    assert [status for status, _ in found] == ["degraded", "up", "up"]
    assert [len(row.changes) for row in await viewer.known(monitor_id)] == [0, 1, 1]


async def test_a_change_of_the_monitor_forgets_nothing(scene: Scene, viewer: Viewer) -> None:
    monitor_id = await scene.monitor(check=SSL)
    await viewer.look(monitor_id, SSL, certificate())
    check = reporting(SSL, "key")
    async with scene.database.tenant(scene.organisation_id) as session:
        await scene.service.change(session, monitor_id, {"check": check}, None)
    assert await viewer.look(monitor_id, check, OTHER["key"], revision=2) == ("degraded", TOLD["key"])


async def test_without_the_option_a_reported_certificate_is_reported_no_longer(
    scene: Scene, viewer: Viewer, other: Viewer
) -> None:
    check = reporting(SSL, "key")
    monitor_id = await scene.monitor(check=check)
    await viewer.look(monitor_id, check, certificate())
    await viewer.look(monitor_id, check, OTHER["key"])
    for revision, written in ((2, SSL), (3, check)):
        async with scene.database.tenant(scene.organisation_id) as session:
            await scene.service.change(session, monitor_id, {"check": written}, None)
        assert await viewer.look(monitor_id, written, OTHER["key"], revision=revision) == UP
        assert await other.look(monitor_id, written, OTHER["key"], revision=revision) == UP
    assert await scene.told() == ["opened", "resolved"]
