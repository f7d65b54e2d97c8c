"""Whoever names a region that no worker serves is told in the same answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from fastapi import FastAPI

from api.context import Context
from tests.integration.api.conftest import Tenant

HEARTBEAT = {"kind": "heartbeat", "period_seconds": 60}


class PlayedRegions:
    """Workers serve ``default`` and nothing else."""

    def warnings(self, regions: Iterable[str]) -> list[str]:
        return [f"nobody in {region}" for region in regions if region != "default"]


@pytest.fixture(autouse=True)
def regions(app: FastAPI, context: Context) -> None:
    app.state.context = replace(context, regions=PlayedRegions())


async def test_every_answer_with_the_monitor_says_so(alice: Tenant) -> None:
    created = await alice.add_monitor(regions=["default"])
    path = f"/v1/monitors/{created['id']}"
    assert created["warnings"] == []
    changed = (await alice.client.patch(path, json={"regions": ["default", "xx"]})).json()
    read = (await alice.client.get(path)).json()
    [listed] = (await alice.client.get("/v1/monitors")).json()["items"]
    assert [each["warnings"] for each in (changed, read, listed)] == [["nobody in xx"]] * 3
    assert (await alice.add_monitor(regions=["yy"]))["warnings"] == ["nobody in yy"]


async def test_what_is_not_to_be_run_needs_no_worker(alice: Tenant) -> None:
    created = await alice.add_monitor(regions=["xx"])
    path = f"/v1/monitors/{created['id']}"
    assert (await alice.client.post(f"{path}/pause")).json()["warnings"] == []
    assert (await alice.client.post(f"{path}/resume")).json()["warnings"] == ["nobody in xx"]
    changed = await alice.client.patch(path, json={"check": HEARTBEAT})
    assert changed.status_code == 200, changed.text
    assert changed.json()["warnings"] == []
