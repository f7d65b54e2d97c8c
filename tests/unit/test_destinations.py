"""Where a check sends what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from shared.domain.destinations import destinations

STEPS = {
    "variables": {"base": "https://shop.example/api", "user": "probe"},
    "steps": [{"name": "log in", "url": "{{base}}/sessions"}, {"name": "order", "url": "{{ base }}/orders"}],
}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"url": "https://Shop.example:8443/a?b#c"}, {("url", "https://shop.example:8443")}),
        ({"url": "https://user@shop.example/"}, {("url", "https://shop.example")}),
        ({"url": "https://shop.example?x=y"}, {("url", "https://shop.example")}),
        ({"url": {"$sealed": "x"}}, {("url", "{'$sealed': 'x'}")}),
        ({"host": "db.example", "port": 5432}, {("host", "'db.example'"), ("port", "5432")}),
        (
            {"url": "https://a/", "auth": {"token_url": "https://b/t"}},
            {("url", "https://a"), ("url", "https://b")},
        ),
        (STEPS, {("url", "https://shop.example")}),
        ({"url": "{{unknown}}/x"}, {("url", "{{unknown}}/x://")}),
    ],
    ids=["port", "user", "query", "sealed", "host", "two", "variables", "unknown variable"],
)
def test_a_document_leads_to(document: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert destinations(document) == expected


def test_a_variable_that_moves_a_url_is_seen_and_any_other_is_not() -> None:
    moved = {**STEPS, "variables": {"base": "https://evil.example/api", "user": "probe"}}
    renamed = {**STEPS, "variables": {"base": "https://shop.example/v2", "user": "other"}}
    assert destinations(moved) - destinations(STEPS)
    assert not destinations(renamed) - destinations(STEPS)
