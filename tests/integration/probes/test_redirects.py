"""Where a redirect may lead, and what goes along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.result import ResultStatus
from tests.integration.probes.conftest import check
from tests.integration.probes.targets import Handler, answer, path_of, serve


def redirects(routes: dict[str, bytes]) -> Handler:
    """Answer by path."""

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(routes[path_of(request)])

    return reply


def to(location: str, status: str = "302 Found", *headers: str) -> bytes:
    return answer(status, b"", f"Location: {location}", *headers)


async def test_http_04_a_cookie_set_on_the_way_opens_the_door(runner: CheckRunner) -> None:
    async def gate(request: bytes, writer: asyncio.StreamWriter) -> None:
        if path_of(request) == "/login":
            writer.write(to("/ui"))
        elif b"Cookie: s=1" in request:
            writer.write(answer("200 OK", b"in"))
        else:
            writer.write(to("/login", "302 Found", "Set-Cookie: s=1; Path=/"))

    async with serve(gate) as target:
        for first in (0, 3):
            verdict = await check(runner, target.url("/ui"))
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.http
            assert [hop.url for hop in verdict.http.redirects] == [target.url("/login"), target.url("/ui")]
            assert target.header(first, "Cookie") is None


async def test_http_04_a_circle_is_seen_after_one_round(runner: CheckRunner) -> None:
    async with serve(to("/x")) as target:
        verdict = await check(runner, target.url("/x"))
        assert verdict.error
        assert verdict.error.kind == "redirect_loop"
        assert len(target.requests) == 1


async def test_http_04_an_endless_staircase_ends_at_the_limit(runner: CheckRunner) -> None:
    async def climb(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(to(path_of(request) + "x"))

    async with serve(climb) as target:
        verdict = await check(runner, target.url("/"), max_redirects=4)
        assert verdict.error
        assert verdict.error.kind == "redirect_loop"
        assert len(target.requests) == 5


async def test_http_05_nothing_the_user_typed_crosses_to_another_origin(runner: CheckRunner) -> None:
    typed: dict[str, Any] = {
        "headers": {"X-Api-Key": "K", "Cookie": "s=1"},
        "auth": {"kind": "basic", "username": "u", "password": "SECRET"},
    }
    async with serve(answer()) as other:
        async with serve(to(other.url(host="localhost"), "302 Found", "Set-Cookie: mine=1")) as target:
            verdict = await check(runner, target.url(), **typed)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert other.requests
        for secret in (b"Authorization", b"X-Api-Key", b"Cookie", b"SECRET"):
            assert secret not in other.requests[0]


async def test_http_05_within_the_origin_everything_goes_along(runner: CheckRunner) -> None:
    async with serve(redirects({"/": to("/next", "302 Found", "Set-Cookie: t=2"), "/next": answer()})) as target:
        verdict = await check(
            runner,
            target.url(),
            headers={"X-Api-Key": "K", "Cookie": "s=1"},
            auth={"kind": "bearer", "token": "T"},
        )
        assert verdict.status is ResultStatus.UP, verdict.error
        assert target.header(1, "Authorization") == "Bearer T"
        assert target.header(1, "X-Api-Key") == "K"
        assert target.header(1, "Cookie") == "s=1; t=2"


async def test_http_05_secrets_do_not_come_back_with_a_later_hop(runner: CheckRunner) -> None:
    async def bounce(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(to(f"http://127.0.0.1:{home.port}/log"))

    async with serve(bounce) as away:
        routes: dict[str, bytes] = {"/": to(away.url(host="localhost")), "/log": answer()}
        async with serve(redirects(routes)) as home:
            verdict = await check(runner, home.url(), headers={"X-Api-Key": "K"})
            assert verdict.status is ResultStatus.UP, verdict.error
            assert home.header(1, "X-Api-Key") is None


async def test_a_body_is_not_sent_on_to_another_origin(runner: CheckRunner) -> None:
    async with serve(answer()) as other, serve(to(other.url(host="localhost"), "308 Moved")) as target:
        verdict = await check(runner, target.url(), method="POST", body="password=1")
        assert verdict.error
        assert verdict.error.kind == "redirect_invalid"
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("303 See Other", "PUT", "GET"),
        ("303 See Other", "HEAD", "HEAD"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "PUT", "PUT"),
    ],
)
async def test_the_method_follows_the_status(runner: CheckRunner, status: str, method: str, expected: str) -> None:
    async with serve(redirects({"/": to("/next", status), "/next": answer()})) as target:
        await check(runner, target.url(), method=method)
        assert target.requests[1].startswith(expected.encode() + b" /next")


async def test_a_redirect_is_an_answer_when_none_is_followed(runner: CheckRunner) -> None:
    async with serve(to("/next")) as target:
        moved = [{"source": "status", "operator": "eq", "value": 302}]
        verdict = await check(runner, target.url(), follow_redirects=False, assertions=moved)
        assert verdict.status is ResultStatus.UP, verdict.error
        assert len(target.requests) == 1


@pytest.mark.parametrize(
    "location",
    ["file:///etc/hostname", "gopher://127.0.0.1:1/", "javascript:alert(1)", "http:///x", "http://u:p@h/"],
)
async def test_sec_03_only_web_addresses_are_followed(runner: CheckRunner, location: str) -> None:
    async with serve(to(location)) as target:
        verdict = await check(runner, target.url())
        assert verdict.error
        assert verdict.error.kind == "redirect_invalid"
        assert verdict.assertions[0].actual is None


async def test_http_03_all_hops_share_one_deadline(runner: CheckRunner) -> None:
    async def slow(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(to(path_of(request) + "x"))

    async with serve(slow) as target:
        verdict = await check(runner, target.url(), timeout=2)
        assert verdict.error
        # With a deadline for each hop there would be too many of them, as none takes two seconds.
        assert verdict.error.kind == "timeout"
        assert "timed out after 2 s" in verdict.error.message


async def test_secrets_in_a_query_are_masked_in_the_result(runner: CheckRunner) -> None:
    async with serve(
        redirects({"/": to("/next?token=SECRET4&a=1"), "/next?token=SECRET4&a=1": answer()})
    ) as target:
        verdict = await check(runner, target.url())
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.http
        assert verdict.http.final_url == target.url("/next?token=***&a=1")
        assert "SECRET4" not in repr(verdict)
