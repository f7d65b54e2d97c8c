"""Judging that may take long is done beside the event loop: no check waits for what another one asks for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from monitoring_worker.probes import judging, steps, tcp
from monitoring_worker.probes import runner as runner_module
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck, HttpStepsCheck, TcpCheck
from shared.domain.result import ResultStatus
from tests.integration.probes.conftest import AT_ONCE
from tests.integration.probes.targets import answer, serve

LONG = b'{"status": "' + b"ok " * 20_000 + b'"}'
SHORT = b'{"status": "ok"}'


def along(path: str) -> dict[str, Any]:
    return {"source": "json", "path": path, "operator": "exists"}


def matching(source: str, pattern: str, **where: str) -> dict[str, Any]:
    return {"source": source, "operator": "matches", "value": pattern, **where}


def http(port: int, *assertions: dict[str, Any]) -> HttpCheck:
    return HttpCheck.model_validate({"url": f"http://127.0.0.1:{port}/", "assertions": assertions})


def http_steps(port: int) -> HttpStepsCheck:
    step = {
        "name": "one",
        "url": f"http://127.0.0.1:{port}/",
        "extract": [{"name": "a", "source": "regex", "path": "ok"}],
    }
    return HttpStepsCheck.model_validate({"steps": [step]})


def banner(port: int) -> TcpCheck:
    return TcpCheck(host="127.0.0.1", port=port, send="x\\r\\n\\r\\n", expect="(ok ){900}")


def long_document(port: int) -> HttpCheck:
    return http(port, {"source": "json", "path": "$.a", "operator": "contains", "value": 1})


def schema(port: int) -> HttpCheck:
    return http(port, {"source": "json_schema", "operator": "matches", "value": {}})


HTTP = (runner_module, "evaluate")
LABORIOUS: dict[str, tuple[Callable[[int], Any], bytes, tuple[Any, str]]] = {
    "a path to many values": (lambda port: http(port, along("$.*")), answer(body=SHORT), HTTP),
    "a filter": (lambda port: http(port, along("$[?@ == 1]")), answer(body=SHORT), HTTP),
    "a schema": (schema, answer(body=SHORT), HTTP),
    "a long body": (lambda port: http(port, matching("body", "ok .{20}")), answer(body=LONG), HTTP),
    "a large pattern": (lambda port: http(port, matching("body", "(.{900})*x")), answer(body=SHORT * 9), HTTP),
    "a long field": (
        lambda port: http(port, matching("header", ".{50}", path="x-long")),
        answer("200 OK", b"", f"X-Long: {'a' * 9000}"),
        HTTP,
    ),
    "a long document": (long_document, answer(body=b'{"a": [' + b"1," * 100_000 + b"1]}"), HTTP),
    "values for later steps": (http_steps, answer(body=SHORT), (steps, "extract")),
    "a banner": (banner, answer(body=LONG), (tcp, "banner_matches")),
}


@pytest.mark.parametrize("case", LABORIOUS)
async def test_the_loop_goes_on_while_an_answer_is_judged(
    monkeypatch: pytest.MonkeyPatch, runner: CheckRunner, case: str
) -> None:
    build, reply, (module, name) = LABORIOUS[case]
    judge, loop, released = getattr(module, name), asyncio.get_running_loop(), threading.Event()

    def only_beside_the_loop(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(released.set)
        assert released.wait(AT_ONCE), "the loop stood still while this was judged"
        return judge(*arguments)

    monkeypatch.setattr(module, name, only_beside_the_loop)
    async with serve(reply) as target:
        verdict = await runner.run(build(target.port), timeout_seconds=2 * AT_ONCE)
    assert released.is_set()
    assert verdict.status is not ResultStatus.MISSED, verdict.error


@pytest.mark.parametrize(
    "assertion",
    [along("$.status"), matching("body", '"ok"'), {"source": "body", "operator": "contains", "value": "ok"}],
    ids=["json", "matches", "contains"],
)
async def test_what_takes_no_time_is_judged_at_once(
    monkeypatch: pytest.MonkeyPatch, runner: CheckRunner, assertion: dict[str, Any]
) -> None:
    """A thread costs more than judging an ordinary answer does."""

    async def refused(_: Any) -> Any:
        raise AssertionError("this goes without a thread")

    monkeypatch.setattr(runner_module, "beside_the_loop", refused)
    async with serve(answer(body=SHORT)) as target:
        verdict = await runner.run(http(target.port, assertion), timeout_seconds=AT_ONCE)
    assert verdict.status is ResultStatus.UP, verdict.error


async def test_an_answer_that_waits_too_long_is_not_held_against_its_target(
    monkeypatch: pytest.MonkeyPatch, runner: CheckRunner
) -> None:
    released = threading.Event()
    monkeypatch.setattr(judging, "PATIENCE", 0.2)
    monkeypatch.setattr(runner_module, "evaluate", lambda *_: released.wait(AT_ONCE))
    async with serve(answer(body=SHORT)) as target:
        with capture_logs() as logs:
            verdict = await runner.run(http(target.port, along("$.*")), timeout_seconds=AT_ONCE)
    released.set()
    assert verdict.status is ResultStatus.MISSED
    assert verdict.error
    assert verdict.error.kind == "overloaded"
    assert "not judged within" in str(logs)
