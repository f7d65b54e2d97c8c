"""Monitors of the kinds below HTTP, stored and read back; what is wrong with one names its field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.conftest import Tenant, monitor

GOOD: dict[str, dict[str, Any]] = {
    "ssl": {"kind": "ssl", "host": "mail.example", "starttls": "smtp", "addresses": "all"},
    "tcp": {"kind": "tcp", "host": "mail.example", "port": 25, "send": r"QUIT\r\n", "expect": "^220"},
    "dns": {"kind": "dns", "name": "shop.example", "record": "MX", "expected": ["10 mail.example"]},
    "ping": {"kind": "ping", "host": "shop.example", "count": 5, "degraded_loss_percent": 20},
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "port out of range": ({**GOOD["tcp"], "port": 65536}, "check.port"),
    "no port": ({"kind": "tcp", "host": "a.example"}, "check.port"),
    "unknown escape": ({**GOOD["tcp"], "send": r"\q"}, "check.send"),
    "pattern that does not compile": ({**GOOD["tcp"], "expect": "("}, "check.expect"),
    "server name without TLS": ({**GOOD["tcp"], "server_name": "a.example"}, "check.server_name"),
    "host that is a number": ({**GOOD["ping"], "host": "2130706433"}, "check.host"),
    "value of another record": ({**GOOD["dns"], "expected": ["mail.example"]}, "check.expected"),
    "equals to nothing": ({"kind": "dns", "name": "a.example", "match": "equals"}, "check.expected"),
    "unknown record": ({**GOOD["dns"], "record": "ANY"}, "check.record"),
    "unknown protocol": ({**GOOD["ssl"], "starttls": "gopher"}, "check.starttls"),
    "threshold that is never reached": (
        {**GOOD["ping"], "degraded_loss_percent": 100},
        "check.degraded_loss_percent",
    ),
    "unknown field": ({**GOOD["ping"], "size": 9}, "check.size"),
}


@pytest.mark.parametrize("kind", sorted(GOOD))
async def test_a_monitor_of_every_kind_is_stored_and_read_back(alice: Tenant, kind: str) -> None:
    created = await alice.add_monitor(name=kind, check=GOOD[kind])
    read = (await alice.client.get(f"/v1/monitors/{created['id']}")).json()
    assert GOOD[kind].items() <= read["check"].items()
    listed = (await alice.client.get("/v1/monitors", params={"kind": kind})).json()
    assert [each["id"] for each in listed["items"]] == [created["id"]]


async def test_what_is_wrong_with_a_check_names_its_field(alice: Tenant) -> None:
    for reason, (check, field) in WRONG.items():
        response = await alice.client.post("/v1/monitors", json=monitor(check=check))
        assert response.status_code == 422, reason
        assert [each["field"] for each in response.json()["errors"]] == [field], reason
