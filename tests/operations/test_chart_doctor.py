"""The init check of the chart, run as it is rendered, against a new installation."""

from __future__ import annotations

import os
import sys

import pytest

from shared.testing.nats import NatsServer
from tests.commands import run
from tests.operations.manifests import Manifest, named, objects, pod, values


async def _examine(variables: dict[str, str]) -> tuple[int, str]:
    given: Manifest = values("default") | {"doctor": {"initCheck": True}}
    (check,) = pod(named(objects(given), "Deployment", "tocsin-api"))["initContainers"]
    environment = {each["name"]: each["value"] for each in check["env"] if "value" in each}
    command = (sys.executable, "-m", "cli.main", *check["args"])
    place = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return await run(*command, env={**place, **environment, **variables})


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
