"""A worker of this release meets checks that the next one has stored."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from monitoring_worker.checking import CheckDuty
from shared.contracts.sealing import Sealer
from shared.contracts.wire import CheckTask, ResultMessage, RunSpec
from shared.domain.errors import ErrorKind
from shared.domain.result import CheckVerdict, ResultStatus
from shared.testing.clock import FakeClock
from shared.testing.engine import FakeEngine

HTTP: dict[str, Any] = {"kind": "http", "url": "http://example.test/"}
STEPS: dict[str, Any] = {"kind": "http_steps", "steps": [{"name": "a", "url": "http://example.test/"}]}


async def verdict_on(engine: FakeEngine, check: dict[str, Any]) -> CheckVerdict:
    clock, results = FakeClock(), list[ResultMessage]()

    async def keep(message: ResultMessage) -> None:
        results.append(message)

    duty = CheckDuty(engine, Sealer(["k" * 32]), keep, clock, region="eu")
    now = clock.now_ms()
    task = CheckTask(
        monitor_id=UUID(int=1),
        revision=1,
        region="eu",
        slot_ms=now,
        interval_ms=60_000,
        run=RunSpec(check, 5.0, 0, 0.5),
    )
    await duty.scheduled(task)
    [result] = results
    return result.verdict


@pytest.mark.parametrize(
    "check",
    [
        HTTP | {"later": []},
        HTTP | {"later": None, "later_too": False},
        HTTP | {"tls": {"later": {}}},
        HTTP | {"auth": {"kind": "basic", "username": "a", "password": "b", "later": ""}},
        HTTP | {"assertions": [{"source": "status", "operator": "eq", "value": 200, "later": []}]},
        {"kind": "http_steps", "steps": [{**STEPS["steps"][0], "later": []}]},
    ],
    ids=["top", "two", "nested", "chosen-by-kind", "in-a-list", "in-a-step"],
)
async def test_an_option_that_is_off_is_not_missed(check: dict[str, Any]) -> None:
    engine = FakeEngine()
    before = repr(check)
    assert (await verdict_on(engine, check)).status is ResultStatus.UP
    assert len(engine.asked) == 1
    assert repr(check) == before


@pytest.mark.parametrize(
    ("check", "named"),
    [
        (HTTP | {"later": [1]}, "later"),
        (HTTP | {"tls": {"later": True}}, "tls.later"),
        ({"kind": "carrier_pigeon"}, "check"),
    ],
    ids=["option", "nested", "kind"],
)
async def test_what_an_older_worker_can_not_do_is_no_outage_of_the_target(
    check: dict[str, Any], named: str
) -> None:
    verdict = await verdict_on(FakeEngine(), check)
    assert verdict.status is ResultStatus.MISSED
    assert verdict.error
    assert verdict.error.kind is ErrorKind.WORKER_GAP
    assert "this worker is older than the check" in verdict.error.message
    assert named in verdict.error.message


@pytest.mark.parametrize("check", [{"kind": "http"}, {"kind": "http", "later": []}], ids=["alone", "beside"])
async def test_what_is_wrong_in_every_release_stays_wrong(check: dict[str, Any]) -> None:
    verdict = await verdict_on(FakeEngine(), check)
    assert verdict.status is ResultStatus.DOWN
    assert verdict.error
    assert verdict.error.kind is ErrorKind.CONFIG_ERROR
