"""Checks of several requests against real servers: what is handed on, what stops, what is shown."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from monitoring_worker.probes.http import HttpProbe
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpStepsCheck
from shared.domain.checks_steps import StepRequest
from shared.domain.errors import ErrorKind
from shared.domain.observation import HttpObservation
from shared.domain.result import CheckVerdict, ResultStatus, StepResult
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, TIMEOUT
from tests.integration.probes.targets import Handler, Names, Target, answer, path_of, serve

TOKEN = "tok/en+5ecret"
PASSWORD = "hunter2-hunter2"


def json_answer(value: Any, *headers: str, status: str = "200 OK") -> bytes:
    return answer(status, json.dumps(value).encode(), "Content-Type: application/json", *headers)


def routes(**known: bytes | Callable[[], Awaitable[bytes]]) -> Handler:
    """Answers by the first part of the path; 404 for what is not known."""

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        part = path_of(request).partition("?")[0].split("/")[1]
        found = known.get(part, answer("404 Not Found"))
        writer.write(found if isinstance(found, bytes) else await found())

    return reply


def steps_check(steps: list[dict[str, Any]], **fields: Any) -> HttpStepsCheck:
    return HttpStepsCheck.model_validate({"kind": "http_steps", "steps": steps, **fields})


async def run(
    runner: CheckRunner, steps: list[dict[str, Any]], timeout: float = TIMEOUT, retries: int = 0, **fields: Any
) -> CheckVerdict:
    check = steps_check(steps, **fields)
    return await runner.run(check, timeout_seconds=timeout, retries=retries, retry_delay_seconds=0)


def step(verdict: CheckVerdict, name: str) -> StepResult:
    return next(each for each in verdict.steps if each.name == name)


def paths(target: Target) -> list[str]:
    return [path_of(request) for request in target.requests]


def failure(verdict: CheckVerdict) -> tuple[ErrorKind, str]:
    assert verdict.error is not None
    return verdict.error.kind, verdict.error.message


LOGIN = {
    "name": "login",
    "method": "POST",
    "extract": [{"name": "token", "source": "json", "path": "$.token"}],
}


async def test_a_token_from_json_is_used_in_the_next_header(runner: CheckRunner) -> None:
    handler = routes(login=json_answer({"token": TOKEN}), orders=json_answer({"open": 3}))
    async with serve(handler) as target:
        verdict = await run(
            runner,
            [
                {
                    **LOGIN,
                    "url": target.url("/login"),
                    "body": {"kind": "json", "value": {"password": "{{password}}"}},
                },
                {
                    "name": "orders",
                    "url": "{{base}}/orders?as={{token}}",
                    "headers": {"Authorization": "Bearer {{token}}"},
                    "assertions": [{"source": "json", "path": "$.open", "operator": "lt", "value": 5}],
                },
            ],
            variables={"base": target.url("")},
            secrets={"password": PASSWORD},
        )
    assert verdict.status is ResultStatus.UP, verdict.error
    assert target.header(1, "authorization") == f"Bearer {TOKEN}"
    assert paths(target) == ["/login", "/orders?as=tok%2Fen%2B5ecret"]
    assert [each.status for each in verdict.steps] == [ResultStatus.UP, ResultStatus.UP]
    assert step(verdict, "login").extracted == {"token": "***"}
    assert verdict.http is not None
    assert verdict.http == step(verdict, "orders").http
    totals = [each.timings_ms.total for each in verdict.steps]
    assert verdict.timings_ms.total == pytest.approx(sum(totals), abs=0.01)


async def test_values_come_from_headers_patterns_and_cookies(runner: CheckRunner) -> None:
    page = answer(
        "200 OK", b'<input name="csrf" value="c5rf-1">', "X-Request: r-7", "Set-Cookie: sid=s1d-77; Path=/"
    )
    async with serve(routes(form=page, send=answer())) as target:
        verdict = await run(
            runner,
            [
                {
                    "name": "form",
                    "url": target.url("/form"),
                    "extract": [
                        {"name": "request", "source": "header", "path": "x-request"},
                        {"name": "csrf", "source": "regex", "path": 'name="csrf" value="([^"]+)"'},
                        {"name": "sid", "source": "cookie", "path": "sid"},
                    ],
                },
                {
                    "name": "send",
                    "method": "POST",
                    "url": target.url("/send/{{request}}"),
                    "headers": {"X-Sid": "{{sid}}", "X-Csrf": "{{csrf}}"},
                },
            ],
        )
    assert verdict.status is ResultStatus.UP, verdict.error
    assert paths(target)[1] == "/send/r-7"
    assert (target.header(1, "x-sid"), target.header(1, "x-csrf")) == ("s1d-77", "c5rf-1")
    assert target.header(1, "cookie") == "sid=s1d-77", "cookies are kept from one step to the next"
    assert step(verdict, "form").extracted == {"request": "r-7", "csrf": "c5rf-1", "sid": "***"}


async def test_the_next_check_starts_without_cookies(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"", "Set-Cookie: sid=1234; Path=/")) as target:
        for _ in range(2):
            await run(runner, [{"name": "one", "url": target.url("/")}])
    assert [target.header(number, "cookie") for number in range(2)] == [None, None]


async def test_a_cookie_set_on_the_way_of_a_redirect_can_be_extracted(runner: CheckRunner) -> None:
    moved = answer("302 Found", b"", "Location: /home", "Set-Cookie: sid=abcdef; Path=/")
    async with serve(routes(login=moved, home=answer(), last=answer())) as target:
        verdict = await run(
            runner,
            [
                {
                    "name": "login",
                    "url": target.url("/login"),
                    "extract": [{"name": "sid", "source": "cookie", "path": "sid"}],
                },
                {"name": "last", "url": target.url("/last"), "headers": {"X-Sid": "{{sid}}"}},
            ],
        )
    assert verdict.status is ResultStatus.UP, verdict.error
    assert target.header(2, "x-sid") == "abcdef"


async def test_a_failed_step_stops_the_check_and_the_cleanup_runs(runner: CheckRunner) -> None:
    handler = routes(
        login=json_answer({"token": TOKEN}), broken=answer("500 Oops"), delete=answer("204 No Content")
    )
    async with serve(handler) as target:
        verdict = await run(
            runner,
            [
                {**LOGIN, "url": target.url("/login")},
                {"name": "broken", "url": target.url("/broken")},
                {"name": "never", "url": target.url("/never")},
            ],
            cleanup={
                "name": "delete",
                "method": "DELETE",
                "url": target.url("/delete"),
                "headers": {"Authorization": "Bearer {{token}}"},
            },
        )
    assert paths(target) == ["/login", "/broken", "/delete"]
    assert target.header(2, "authorization") == f"Bearer {TOKEN}"
    kind, message = failure(verdict)
    assert kind is ErrorKind.STATUS_CODE
    assert message.startswith("step 'broken': ")
    never = step(verdict, "never")
    assert (never.skipped, never.status, never.attempts) == (True, None, 0)
    assert step(verdict, "delete").status is ResultStatus.UP
    assert verdict.http is not None
    assert verdict.http.status_code == 500


async def test_a_step_may_fail_and_let_the_others_go_on(runner: CheckRunner) -> None:
    async with serve(routes(broken=answer("500 Oops"), fine=answer())) as target:
        verdict = await run(
            runner,
            [
                {"name": "broken", "url": target.url("/broken"), "on_error": "continue"},
                {"name": "fine", "url": target.url("/fine")},
            ],
        )
    assert paths(target) == ["/broken", "/fine"]
    assert verdict.status is ResultStatus.DOWN
    assert failure(verdict)[1].startswith("step 'broken': ")
    assert [each.status for each in verdict.steps] == [ResultStatus.DOWN, ResultStatus.UP]


async def test_one_deadline_spans_all_steps_and_the_cleanup_still_runs(runner: CheckRunner) -> None:
    async def slow() -> bytes:
        await asyncio.sleep(0.25)
        return answer()

    async def hang() -> bytes:
        await asyncio.sleep(30)
        return answer()

    async with serve(routes(slow=slow, hang=hang, clean=answer())) as target:
        began = time.monotonic()
        verdict = await run(
            runner,
            [
                {"name": "one", "url": target.url("/slow")},
                {"name": "two", "url": target.url("/hang"), "on_error": "continue"},
                {"name": "three", "url": target.url("/never")},
            ],
            timeout=2.0,
            cleanup={"name": "clean", "url": target.url("/clean")},
        )
        took = time.monotonic() - began
    assert 1.5 < took < AT_ONCE, "steps have 1.6 s of it, the cleanup the rest"
    assert paths(target) == ["/slow", "/hang", "/clean"]
    kind, message = failure(verdict)
    assert kind is ErrorKind.TIMEOUT
    assert message.startswith("step 'two': timed out after 1.")
    assert "first byte" in message
    three = step(verdict, "three")
    assert (three.status, three.attempts) == (ResultStatus.DOWN, 0)
    assert step(verdict, "clean").status is ResultStatus.UP


async def test_a_cleanup_that_hangs_ends_with_the_deadline(runner: CheckRunner) -> None:
    async def hang() -> bytes:
        await asyncio.sleep(30)
        return answer()

    async with serve(routes(one=answer(), hang=hang)) as target:
        began = time.monotonic()
        verdict = await run(
            runner,
            [{"name": "one", "url": target.url("/one")}],
            timeout=2,
            cleanup={"name": "clean", "url": target.url("/hang")},
        )
    assert time.monotonic() - began < AT_ONCE
    assert failure(verdict)[1].startswith("step 'clean': timed out")


async def test_no_secret_is_in_the_result_or_in_a_log(runner: CheckRunner) -> None:
    echo = json_answer({"token": TOKEN, "you_sent": PASSWORD}, f"X-Echo: {TOKEN}", status="500 Oops")

    async with serve(routes(login=json_answer({"token": TOKEN}), echo=echo)) as target:
        with capture_logs() as logs:
            verdict = await run(
                runner,
                [
                    {**LOGIN, "url": target.url("/login?p={{password}}")},
                    {
                        "name": "echo",
                        "url": target.url("/echo/{{token}}?q={{token}}"),
                        "headers": {"X-Api-Key": "{{token}}"},
                        "assertions": [
                            {"source": "header", "path": "x-echo", "operator": "eq", "value": "x"},
                            {"source": "json", "path": "$.token", "operator": "eq", "value": "x"},
                        ],
                        "extract": [{"name": "copy", "source": "json", "path": "$.token", "secret": False}],
                        "on_error": "continue",
                    },
                    {
                        "name": "unfit",
                        "url": target.url("/"),
                        "headers": {"X-Bad": "{{broken}}"},
                    },
                ],
                secrets={"password": PASSWORD, "broken": f"{PASSWORD}\nX"},
                retries=1,
            )
    text = msgspec.json.encode(verdict).decode() + json.dumps(logs, default=str)
    assert verdict.attempts == 2
    assert step(verdict, "unfit").error is not None
    for secret in (TOKEN, PASSWORD, "tok%2Fen%2B5ecret", "tok\\/en"):
        assert secret not in text
    assert "***" in text
    assert verdict.evidence is not None
    assert verdict.evidence.body is not None


async def test_a_private_target_is_refused_in_a_later_step_although_the_first_is_allowed() -> None:
    names = Names({"public.test": [("127.0.0.1",)], "private.test": [("10.1.2.3",)]})
    policy = AddressPolicy(allow_private=False, allowed_networks=(ip_network("127.0.0.1/32"),))
    async with serve(json_answer({"next": "http://private.test/"})) as target:
        verdict = await run(
            CheckRunner(policy, resolver=names),
            [
                {
                    "name": "one",
                    "url": target.url(host="public.test"),
                    "extract": [{"name": "next", "source": "json", "path": "$.next"}],
                },
                {"name": "two", "url": "{{next}}"},
            ],
            retries=2,
        )
    kind, message = failure(verdict)
    assert kind is ErrorKind.BLOCKED_TARGET
    assert message.startswith("step 'two': ")
    assert target.connections == 1, "a blocked target is not worth a retry"


async def test_each_step_is_resolved_and_checked_anew() -> None:
    names = Names({"rebind.test": [("127.0.0.1",), ("10.1.2.3",)]})
    policy = AddressPolicy(allow_private=False, allowed_networks=(ip_network("127.0.0.1/32"),))
    async with serve(answer()) as target:
        url = target.url(host="rebind.test")
        verdict = await run(CheckRunner(policy, resolver=names), [{"name": n, "url": url} for n in ("one", "two")])
    assert failure(verdict)[0] is ErrorKind.BLOCKED_TARGET
    assert [each.status for each in verdict.steps] == [ResultStatus.UP, ResultStatus.DOWN]


async def test_twenty_steps_are_run_in_order(runner: CheckRunner) -> None:
    async with serve(answer()) as target:
        verdict = await run(runner, [{"name": f"step {n}", "url": target.url(f"/{n}")} for n in range(20)])
    assert verdict.status is ResultStatus.UP
    assert paths(target) == [f"/{number}" for number in range(20)]
    assert len(verdict.steps) == 20


@pytest.mark.parametrize(
    ("extract", "kind"),
    [
        pytest.param({"source": "json", "path": "$.no"}, ErrorKind.JSON_PATH_MISSING, id="json"),
        pytest.param({"source": "json", "path": "$.list"}, ErrorKind.ASSERTION_FAILED, id="json that is a list"),
        pytest.param({"source": "regex", "path": "no(thing)"}, ErrorKind.KEYWORD_MISSING, id="regex"),
        pytest.param({"source": "header", "path": "x-no"}, ErrorKind.ASSERTION_FAILED, id="header"),
        pytest.param({"source": "cookie", "path": "no"}, ErrorKind.ASSERTION_FAILED, id="cookie"),
    ],
)
async def test_what_cannot_be_extracted_fails_its_step(
    runner: CheckRunner, extract: dict[str, str], kind: ErrorKind
) -> None:
    async with serve(json_answer({"list": [1]})) as target:
        verdict = await run(
            runner,
            [{"name": "take", "url": target.url(), "extract": [{"name": "x", **extract}]}],
            cleanup={"name": "clean", "url": target.url("/{{x}}")},
        )
    assert failure(verdict)[0] is kind
    assert failure(verdict)[1].startswith("step 'take': variable 'x'")
    assert verdict.evidence is not None
    assert ("content-type", "application/json") in verdict.evidence.headers
    clean = step(verdict, "clean")
    assert clean.error is not None
    assert clean.error.kind is ErrorKind.CONFIG_ERROR
    assert "'x'" in clean.error.message


async def test_a_retry_of_the_monitor_runs_all_steps_again(runner: CheckRunner) -> None:
    async with serve(routes(one=answer(), two=answer("503 Busy"))) as target:
        verdict = await run(
            runner, [{"name": name, "url": target.url(f"/{name}")} for name in ("one", "two")], retries=1
        )
    assert paths(target) == ["/one", "/two", "/one", "/two"]
    assert verdict.attempts == 2
    assert verdict.evidence is not None
    assert len(verdict.evidence.attempts) == 2


async def test_a_fault_of_our_own_is_not_held_against_the_target(
    runner: CheckRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = HttpProbe.observe

    async def broken(self: HttpProbe, spec: StepRequest, *more: Any) -> HttpObservation:
        if spec.name == "two":
            raise RuntimeError(f"with {TOKEN} in it")
        return await observe(self, spec, *more)

    monkeypatch.setattr(HttpProbe, "observe", broken)
    async with serve(json_answer({"token": TOKEN})) as target:
        with capture_logs() as logs:
            verdict = await run(
                runner,
                [{**LOGIN, "url": target.url("/login")}, {"name": "two", "url": target.url("/two")}],
                cleanup={"name": "clean", "url": target.url("/clean")},
            )
    assert paths(target) == ["/login", "/clean"], "what has been begun is cleaned up all the same"
    assert verdict.status is ResultStatus.MISSED
    assert failure(verdict)[0] is ErrorKind.INTERNAL_ERROR
    told = json.dumps(logs, default=str)
    assert TOKEN not in told
    assert "RuntimeError: with *** in it" in told
