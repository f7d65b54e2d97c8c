"""Values of the chart: wrong ones are named, all are documented, and the production ones are printed."""

from __future__ import annotations

import re

import pytest
import yaml
from helm_python import HelmError

from helm.chart import CHART, PRODUCTION, README, documented, main, with_table
from tests.operations.manifests import Manifest, installed, objects, of_kind, values, workloads


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "set nats.url or nats.existingSecret"),
        ({"nats": {"url": "nats://n:4222"}}, "set database.url or database.existingSecret"),
        ({"api": {"ingress": {"enabled": True}}}, "api.ingress.host"),
        ({"api": {"httpRoute": {"enabled": True}}}, "api.httpRoute.parentRefs"),
        ({"worker": {"autoscaling": {"kind": "keda"}}}, "nats.monitoringEndpoint"),
        ({"bundled": {"nats": {"enabled": True}}, "nats": {"streamReplicas": 3}}, "nats.streamReplicas"),
        ({"nats": {"url": "http://n"}}, "/nats/url"),
        ({"secretKeys": {"value": "short"}}, "/secretKeys/value"),
        ({"workers": {"EU_west": {}}}, "EU_west"),
        ({"workers": {"eu": {"replica": 3}}}, "/workers/eu"),
        ({"scheduler": {"replicas": -1}}, "/scheduler/replicas"),
        ({"schedulers": {}}, "schedulers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_or_wrong_is_named(given: Manifest, said: str) -> None:
    base: Manifest = {} if said.startswith("set ") else values("default")
    with pytest.raises(HelmError, match=re.escape(said)):
        objects(base | given)


def test_a_release_of_workers_only_runs_nothing_else_and_needs_no_database() -> None:
    given: Manifest = {
        "nats": {"existingSecret": "tocsin-nats"},
        "database": {"existingSecret": "unused"},
        "secretKeys": {"existingSecret": "tocsin-secret-keys"},
        "migrations": {"enabled": False},
        "api": {"replicas": 0},
        "scheduler": {"replicas": 0},
        "workers": {"default": None, "office": {"recorder": False}},
    }
    manifests = objects(given)
    running = {each["metadata"]["name"]: each for each in workloads(manifests) if each["spec"].get("replicas", 1)}
    assert set(running) == {"tocsin-worker-office"}
    assert "unused" not in str(running)
    budgets = [each["metadata"]["name"] for each in of_kind(manifests, "PodDisruptionBudget")]
    assert budgets == ["tocsin-worker-office"]


def test_the_table_of_values_is_current() -> None:
    assert main(["--check"]) == 0, "run: python -m helm.chart --readme"


def test_a_table_that_is_out_of_date_is_replaced() -> None:
    page = "a\n<!-- values -->\nold\n<!-- end -->\nb\n"
    text = "one:\n  # -- What it is,\n  # in two lines.\n  two: [a]\n# no\nthree: 3\n"
    assert with_table(page, text) == (
        "a\n<!-- values -->\n| Value | Default | Meaning |\n|---|---|---|\n"
        "| `one.two` | `[a]` | What it is, in two lines. |\n<!-- end -->\nb\n"
    )


def test_every_value_is_documented() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    paths = [path for path, _ in documented(text)]
    assert "<!-- values -->" in README.read_text(encoding="utf-8")
    assert [leaf for leaf in _leaves(yaml.safe_load(text)) if not any(_is_in(leaf, path) for path in paths)] == []


def test_the_production_manifests_are_printed_as_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = [manifest for manifest in yaml.safe_load_all(capsys.readouterr().out) if manifest]
    assert printed == list(installed(PRODUCTION.name.removesuffix("-values.yaml")))


def _leaves(values_: Manifest, prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in values_.items():
        path = f"{prefix}{key}"
        found += _leaves(value, f"{path}.") if isinstance(value, dict) and value else [path]
    return found


def _is_in(leaf: str, path: str) -> bool:
    return leaf == path or leaf.startswith(f"{path}.")
