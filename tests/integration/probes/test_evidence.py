"""What a failed check keeps for whoever has to find out why, and what it never shows."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import CheckVerdict, Evidence, ResultStatus
from tests.integration.probes.conftest import HERE, Authority, body_contains, check
from tests.integration.probes.targets import Names, answer, closed_port, serve


def evidence_of(verdict: CheckVerdict) -> Evidence:
    assert verdict.evidence, verdict
    return verdict.evidence


async def test_a_check_that_is_up_keeps_no_evidence(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"ready")) as target:
        assert (await check(runner, target.url())).evidence is None


@pytest.mark.parametrize("looks", [[], body_contains("ready")])
async def test_a_bad_answer_is_kept_as_far_as_it_helps(runner: CheckRunner, looks: list[dict[str, Any]]) -> None:
    body = gzip.compress("Wartung: gleich zurück. ".encode("latin-1") * 500)
    fields = (
        "Content-Type: text/html; charset=latin-1",
        "Content-Encoding: gzip",
        "Set-Cookie: sid=abcdef",
        "X-A: 1",
    )
    async with serve(answer("503 Busy", body, *fields)) as target:
        evidence = evidence_of(await check(runner, target.url(), assertions=looks))
        assert evidence.body
        assert evidence.body.startswith("Wartung: gleich zurück.")
        assert len(evidence.body) == 1024
        headers = dict(evidence.headers)
        assert headers["x-a"] == "1"
        assert headers["set-cookie"] == "***"
        assert [each.address for each in evidence.addresses] == [f"127.0.0.1:{target.port}"]


async def test_a_body_that_breaks_off_is_kept_up_to_there(runner: CheckRunner) -> None:
    async with serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf of it") as target:
        verdict = await check(runner, target.url(), assertions=body_contains("x"))
        assert evidence_of(verdict).body == "half of it"


async def test_headers_without_measure_are_bounded(runner: CheckRunner) -> None:
    fields = [f"X-{number}: {'v' * 400}" for number in range(100)]
    async with serve(answer("500 Oops", b"", *fields)) as target:
        evidence = evidence_of(await check(runner, target.url()))
        assert sum(len(name) + len(value) for name, value in evidence.headers) <= 4096
        assert all(len(value) <= 300 for _, value in evidence.headers)


async def test_every_address_that_was_tried_is_named_with_its_failure() -> None:
    port = closed_port()
    runner = CheckRunner(HERE, resolver=Names({"two.example.test": [("127.0.0.1", "127.0.0.2")]}))
    verdict = await check(runner, f"http://two.example.test:{port}/")
    assert [(each.address, each.error) for each in evidence_of(verdict).addresses] == [
        (f"127.0.0.1:{port}", "connect_refused"),
        (f"127.0.0.2:{port}", "connect_refused"),
    ]


async def test_all_attempts_are_told_also_when_the_last_one_is_up(runner: CheckRunner) -> None:
    async def third_time_lucky(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer() if len(target.requests) == 3 else answer("503 Busy"))

    async with serve(third_time_lucky) as target:
        spec = HttpCheck(url=target.url())
        verdict = await runner.run(spec, timeout_seconds=30, retries=5, retry_delay_seconds=0.05)
        assert verdict.status is ResultStatus.UP
        assert verdict.attempts == 3
        attempts = evidence_of(verdict).attempts
        assert [each.error and each.error.kind for each in attempts] == ["status_code", "status_code", None]
        assert attempts[0].started_ms == 0
        # Nine tenths of the delay, less the millisecond to which event loops keep time.
        assert 44 <= attempts[1].started_ms < attempts[2].started_ms
        assert all(each.total_ms > 0 for each in attempts)


@pytest.mark.parametrize(("share", "seconds"), [(0.0, 0.09), (1.0, 0.11)])
async def test_the_delay_before_a_retry_is_spread(
    monkeypatch: pytest.MonkeyPatch, share: float, seconds: float
) -> None:
    delays: list[float] = []
    sleep = asyncio.sleep

    async def recorded(delay: float) -> None:
        delays.append(delay)
        await sleep(delay)

    monkeypatch.setattr(asyncio, "sleep", recorded)
    runner = CheckRunner(HERE, jitter=lambda: share)
    spec = HttpCheck(url=f"http://127.0.0.1:{closed_port()}/")
    verdict = await runner.run(spec, timeout_seconds=30, retries=1, retry_delay_seconds=0.1)
    assert delays == [pytest.approx(seconds)]
    assert evidence_of(verdict).attempts[1].started_ms >= seconds * 1000 - 1


async def test_a_target_that_is_meant_to_be_down(runner: CheckRunner) -> None:
    closed = await check(runner, f"http://127.0.0.1:{closed_port()}/", invert=True)
    assert closed.status is ResultStatus.UP
    assert closed.error is None
    async with serve(answer()) as target:
        there = await check(runner, target.url(), invert=True)
        assert there.status is ResultStatus.DOWN
        assert there.error
        assert "expects it to be down" in there.error.message


# O-NOTIF-03. The server sends back everything it was sent, in every place.


def echo(status: str) -> Callable[[bytes, asyncio.StreamWriter], Any]:
    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        text = request.decode("latin-1")
        fields = [f"X-Echo-{n}: {line}" for n, line in enumerate(text.split("\r\n")) if line]
        body = json.dumps({"request": text, "filler": "x" * 120}).encode() + b"y" * 900 + request
        writer.write(answer(status, body, *fields))

    return reply


async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def secretive(port: int, scheme: str = "http", path: str = "/") -> dict[str, Any]:
    return {
        "url": f"{scheme}://u%40d:SECRET3%3d@127.0.0.1:{port}{path}?token=SECRET4&a=1",
        "headers": {"X-Api-Key": "SECRET5", "Cookie": "sid=SECRET6"},
        "method": "POST",
        "body": {"kind": "form", "fields": {"password": "SECRET7 ü", "plain": "x"}},
        "assertions": [
            {"source": "status", "operator": "in", "value": "200-599"},
            {"source": "body", "operator": "not_contains", "value": "token=SECRET4"},
            {"source": "body", "operator": "matches", "value": "^nothing like it"},
            {"source": "header", "path": "X-Echo-1", "operator": "eq", "value": "SECRET5"},
            {"source": "json", "path": "$.request", "operator": "empty"},
            {"source": "final_url", "operator": "contains", "value": "elsewhere"},
        ],
        "timeout": 0.5,
    }


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


async def run_secretive(runner: CheckRunner, port: int, scheme: str = "http", **more: Any) -> str:
    """Everything a run leaves behind, as one text."""
    fields = {**secretive(port, scheme), **more}
    timeout = fields.pop("timeout")
    with capture_logs() as logs:
        spec = HttpCheck.model_validate(fields)
        verdict = await runner.run(spec, timeout_seconds=timeout, retries=1, retry_delay_seconds=0.01)
    stored = msgspec.json.encode(verdict).decode()
    assert verdict.status is ResultStatus.DOWN, verdict
    return f"{stored}{verdict!r}{logs}"


@pytest.mark.parametrize("status", ["200 OK", "500 SECRET-free"])
async def test_notif_03_no_secret_is_left_of_an_answer_that_echoes_all(
    runner: CheckRunner, everything_logged: pytest.LogCaptureFixture, status: str
) -> None:
    async with serve(echo(status)) as target:
        left = await run_secretive(runner, target.port)
        assert target.header(0, "Authorization") == "Basic dUBkOlNFQ1JFVDM9"
    for secret in ("SECRET3", "SECRET4", "SECRET5", "SECRET6", "SECRET7", "dUBkOlNFQ1JFVDM9"):
        assert secret not in left
        assert secret not in everything_logged.text
    assert "***" in left


async def test_notif_03_no_secret_is_left_of_a_failure(
    runner: CheckRunner, authority: Authority, tmp_path: Any, everything_logged: pytest.LogCaptureFixture
) -> None:
    left = await run_secretive(runner, closed_port())
    async with serve(hang) as target:
        left += await run_secretive(runner, target.port)
    stranger = Authority(tmp_path)
    async with serve(answer(), tls=stranger.context()) as target:
        left += await run_secretive(runner, target.port, "https")
    async with serve(answer("302 Found", b"", "Location: http://u:SECRET8@h/?key=SECRET9")) as target:
        left += await run_secretive(runner, target.port)
    async with serve(answer("302 Found", b"", "Location: /?key=SECRET9&echo=SECRET5")) as target:
        left += await run_secretive(runner, target.port)
    for number in range(3, 10):
        assert f"SECRET{number}" not in left
        assert f"SECRET{number}" not in everything_logged.text


async def test_notif_03_a_fault_of_ours_does_not_log_the_secret_either(
    everything_logged: pytest.LogCaptureFixture,
) -> None:
    class Broken(Names):
        async def resolve(self, host: str, family: str) -> tuple[str, ...]:  # noqa: ARG002
            raise RuntimeError("http://u:SECRET1@x/?token=SECRET2 with SECRET5")

    spec = HttpCheck.model_validate({"url": "http://a.example/", "headers": {"X-Api-Key": "SECRET5"}})
    with capture_logs() as logs:
        verdict = await CheckRunner(HERE, resolver=Broken({})).run(spec, timeout_seconds=1)
    assert verdict.status is ResultStatus.MISSED
    assert "RuntimeError" in str(logs)
    assert "SECRET" not in f"{logs}{verdict!r}{everything_logged.text}"


async def test_notif_03_a_value_in_a_sensitive_header_is_not_shown(runner: CheckRunner) -> None:
    async with serve(answer("200 OK", b"sid is SESSION1", "Set-Cookie: sid=SESSION1; Path=/")) as target:
        asserted = {"source": "header", "path": "set-cookie", "operator": "contains", "value": "Secure"}
        verdict = await check(runner, target.url(), assertions=[asserted])
        assert verdict.error
        assert "set-cookie" in verdict.error.message
        assert "SESSION1" not in f"{verdict.error}{verdict.assertions}"
