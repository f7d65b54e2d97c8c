"""Servers that answer anything at all, over real sockets: every check ends in time, and none by a fault of ours."""

from __future__ import annotations

import asyncio
import random
import time
from ipaddress import ip_network

import msgspec
import pytest

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.errors import ErrorKind
from shared.domain.result import ResultStatus
from shared.domain.url import is_address
from shared.http.errors import TargetError
from shared.http.guard import AddressPolicy
from shared.http.resolver import Family
from tests.dice import new_dice
from tests.integration.probes.conftest import AT_ONCE, HERE
from tests.integration.probes.targets import Names, answer, serve

CASES = 300
TIMEOUT = 0.5
ASSERTIONS = [
    {"source": "json", "path": "$.a[?@.b > 1]", "operator": "exists"},
    {"source": "json_schema", "operator": "matches", "value": {"type": "object", "required": ["a"]}},
    {"source": "header", "path": "x-a", "operator": "matches", "value": "^a"},
    {"source": "final_url", "operator": "contains", "value": "/"},
]
LOCATION = [
    *(
        "/",
        "//",
        "http://",
        "https://",
        "127.0.0.1",
        "[::1]",
        "[",
        "]",
        ":",
        "@",
        "u:p@",
        "?",
        "#",
        "%00",
        "%zz",
        "\\",
    ),
    *(
        "..",
        "\t",
        " ",
        "ü",
        "javascript:",
        "file:///",
        "a" * 3000,
        ":99999",
        ":0",
        "localhost",
        "。",
        "\x7f",
        "?token=x",
    ),
]


class OnlyAddresses(Names):
    """No name exists: a location that was made up leads nowhere outside of this machine."""

    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        if is_address(host):
            return await super().resolve(host, family)
        raise TargetError(ErrorKind.DNS_NXDOMAIN, f"{host} does not exist")


async def judge(runner: CheckRunner, url: str, generator: random.Random) -> None:
    spec = HttpCheck.model_validate(
        {
            "url": url,
            "method": generator.choice(["GET", "POST"]),
            "http_version": generator.choice(["auto", "1.1", "2"]),
            "assertions": generator.sample(ASSERTIONS, generator.randrange(5)),
            "max_redirects": 5,
        }
    )
    started = time.monotonic()
    verdict = await runner.run(spec, timeout_seconds=TIMEOUT)
    assert time.monotonic() - started < TIMEOUT + AT_ONCE
    assert verdict.status is not ResultStatus.MISSED, verdict.error
    assert len(msgspec.json.encode(verdict)) < 20_000


@pytest.fixture
def generator() -> random.Random:
    return new_dice()


async def test_no_location_breaks_a_check(generator: random.Random) -> None:
    async def anywhere(_: bytes, writer: asyncio.StreamWriter) -> None:
        place = "".join(generator.choices(LOCATION, k=generator.randrange(1, 6)))
        status = generator.choice(["301 A", "302 B", "303 C", "307 D", "308 E"])
        writer.write(
            answer(status, b"x", f"Location: {place.encode().decode('latin-1')}", "Set-Cookie: a=b; Path=/")
        )

    async with serve(anywhere) as target:
        for policy in (HERE, AddressPolicy(allowed_networks=(ip_network("127.0.0.1/32"),))):
            runner = CheckRunner(policy, resolver=OnlyAddresses({}))
            for _ in range(CASES // 2):
                await judge(runner, target.url(), generator)


async def test_no_answer_breaks_a_check(runner: CheckRunner, generator: random.Random) -> None:
    async def anything(_: bytes, writer: asyncio.StreamWriter) -> None:
        data = bytearray(answer("200 OK", b'{"a":[{"b":2}]}', "X-A: abc", "Content-Type: text/x; charset=utf-16"))
        for __ in range(generator.randrange(6)):
            start = generator.randrange(len(data))
            data[start : start + generator.randrange(4)] = generator.randbytes(generator.randrange(4))
        for piece in (bytes(data[:20]), bytes(data[20:])):
            writer.write(piece)
            await writer.drain()

    async with serve(anything) as target:
        for _ in range(CASES):
            await judge(runner, target.url(), generator)
