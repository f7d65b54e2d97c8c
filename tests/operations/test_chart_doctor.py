"""The init check of the chart, run as it is rendered, against a new installation."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from shared.testing.nats import NatsServer
from tests.operations.manifests import Manifest, named, objects, pod, values


async def _examine(variables: dict[str, str]) -> tuple[int, str]:
    given: Manifest = values("default") | {"doctor": {"initCheck": True}}
    (check,) = pod(named(objects(given), "Deployment", "tocsin-api"))["initContainers"]
    environment = {each["name"]: each["value"] for each in check["env"] if "value" in each}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli.main",
        *check["args"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.parametrize(
    ("login", "code"), [("tocsin", 0), ("stranger", 1)], ids=["servers that are fit", "a login that is refused"]
)
async def test_it_lets_the_api_start_only_where_it_can_work(
    nats: NatsServer, database_url: str, login: str, code: int
) -> None:
    ended, said = await _examine(
        {
            "TOCSIN_NATS_URL": nats.url,
            "TOCSIN_DATABASE_URL": database_url.replace("//tocsin@", f"//{login}@"),
            "TOCSIN_SECRET_KEYS": "k" * 48,
        }
    )
    assert ended == code, said
