"""TLS-04: each threshold of a certificate is told once, the tightest one only, and its end once more."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from shared.contracts.wire import ResultMessage
from shared.db.repositories.results import ensure_partitions
from shared.db.session import Database
from shared.domain.checks import HttpCheck, SslCheck
from shared.domain.clock import to_datetime
from shared.domain.evaluate import evaluate
from shared.domain.observation import HttpObservation, TlsObservation, TlsPeer
from shared.domain.result import Timings
from tests.integration.db.tenants import add_organisation
from tests.integration.path.scene import Scene, make_scene

STEP = timedelta(hours=6)
SSL = SslCheck(kind="ssl", host="a.test")
HTTPS = HttpCheck.model_validate({"url": "https://a.test/", "tls": {"expiry_warning_days": [30, 14, 7]}})
PLAIN_HTTPS = HttpCheck.model_validate({"url": "https://a.test/"})


@pytest.fixture
async def scene(database: Database) -> Scene:
    scene = await make_scene(database, await add_organisation(database, "acme"))
    today = to_datetime(scene.clock.now_ms()).date()
    async with database.system() as session:
        await ensure_partitions(session, (today + timedelta(days=day) for day in range(120)))
    return scene


def certificate(ends: datetime) -> bytes:
    issued = trustme.CA().issue_cert("a.test", not_after=ends, not_before=ends - timedelta(days=90))
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)


async def look(scene: Scene, monitor_id: UUID, check: SslCheck | HttpCheck, der: bytes) -> None:
    """One result of a target that shows this certificate."""
    peer, now_ms = TlsPeer("TLSv1.3", "any", (der,), (der,)), scene.clock.now_ms()
    seen: TlsObservation | HttpObservation = TlsObservation(Timings(), peer=peer)
    if isinstance(check, HttpCheck):
        seen = HttpObservation(timings=Timings(), tls=peer, status_code=200, final_url=check.url)
    verdict = evaluate(check, seen, now_ms)
    await scene.record([ResultMessage(monitor_id, 1, "default", now_ms, now_ms, verdict)])


async def told_over(
    scene: Scene, monitor_id: UUID, check: SslCheck | HttpCheck, der: bytes, days: float
) -> list[tuple[int, str]]:
    """What is told while the clock goes on: hours since the beginning, and the message of the incident."""
    told: list[tuple[int, str]] = []
    for step in range(round(timedelta(days=days) / STEP)):
        scene.clock.advance(STEP.total_seconds())
        await look(scene, monitor_id, check, der)
        for transition in await scene.told():
            (incident,) = (await scene.incidents())[-1:]
            told.append((6 * (step + 1), f"{transition}: {incident.message}"))
    return told


@pytest.mark.parametrize("check", [SSL, HTTPS], ids=["ssl", "https"])
async def test_each_threshold_is_told_once_and_then_the_end(scene: Scene, check: SslCheck | HttpCheck) -> None:
    monitor_id = await scene.monitor(interval_seconds=21_600)
    ends = to_datetime(scene.clock.now_ms()) + timedelta(days=40, hours=1)
    told = await told_over(scene, monitor_id, check, certificate(ends), 41)
    assert [text.partition(" expire")[2].partition("(")[2] for _, text in told[:3]] == [
        "warning at 30)",
        "warning at 14)",
        "warning at 7)",
    ]
    # Days that are left are counted in full: 30 of them are reached when less than 31 are left.
    assert [hours for hours, _ in told[:3]] == [(40 - days - 1) * 24 + 6 for days in (30, 14, 7)]
    if check is SSL:  # of a request the handshake itself fails then
        assert [text.partition(":")[0] for _, text in told] == ["opened"] * 4
        assert "expired" in told[3][1]
    (incident,) = await scene.incidents()
    assert incident.state == "open"


async def test_a_certificate_that_is_seen_late_is_told_once_and_a_new_one_ends_it(scene: Scene) -> None:
    monitor_id = await scene.monitor(interval_seconds=21_600)
    now = to_datetime(scene.clock.now_ms())
    told = await told_over(scene, monitor_id, SSL, certificate(now + timedelta(days=6, hours=23)), 3)
    assert [text.partition(":")[0] for _, text in told] == ["opened"]
    told = await told_over(scene, monitor_id, SSL, certificate(now + timedelta(days=93)), 50)
    assert [text.partition(":")[0] for _, text in told] == ["resolved"]


async def test_a_request_is_not_degraded_by_a_certificate_unless_asked_for(scene: Scene) -> None:
    monitor_id = await scene.monitor(interval_seconds=21_600)
    ends = to_datetime(scene.clock.now_ms()) + timedelta(days=5)
    assert await told_over(scene, monitor_id, PLAIN_HTTPS, certificate(ends), 4) == []
