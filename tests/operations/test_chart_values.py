"""Values of the chart: wrong ones are named, all are documented, and the production ones are printed."""

from __future__ import annotations

import re

import pytest
import yaml
from helm_python import Chart, HelmError

from helm.chart import CHART, NAMESPACE, PRODUCTION, README, RELEASE, documented, main, with_table
from tests.operations.manifests import Manifest, containers, installed, objects, of_kind, values, workloads


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "set nats.url or nats.existingSecret"),
        ({"nats": {"url": "nats://n:4222"}}, "set database.url or database.existingSecret"),
        ({"api": {"ingress": {"enabled": True}}}, "api.ingress.host"),
        ({"api": {"httpRoute": {"enabled": True}}}, "api.httpRoute.parentRefs"),
        ({"worker": {"autoscaling": {"kind": "keda"}}}, "nats.monitoringEndpoint"),
        ({"bundled": {"nats": {"enabled": True}}, "nats": {"streamReplicas": 3}}, "nats.streamReplicas"),
        ({"nats": {"url": "http://n"}}, "nats.url: begin with nats://"),
        ({"nats": {"url": "nats://n:4222,m:4222"}}, "nats.url: begin with nats://"),
        ({"database": {"url": "mysql://tocsin:hidden@n"}}, "database.url: begin with postgresql://"),
        ({"secretKeys": {"value": "short"}}, "secretKeys.value: 32 characters"),
        ({"secretKeys": {"value": f"{'k' * 32},short"}}, "secretKeys.value: 32 characters"),
        ({"fullnameOverride": "2nd"}, "fullnameOverride: names of services begin with a letter, 2nd does not"),
        (
            {"worker": {"autoscaling": {"kind": "hpa", "maxReplicas": 1}}},
            "minReplicas 2 is more than maxReplicas 1",
        ),
        ({"api": {"autoscaling": {"enabled": True, "maxReplicas": 1}}}, "minReplicas 2 is more than maxReplicas 1"),
        (
            {
                "networkPolicy": {"enabled": True, "apiFrom": [{"podSelector": {}}]},
                "metrics": {"serviceMonitor": {"enabled": True}},
            },
            "networkPolicy.metricsFrom: name who scrapes",
        ),
        ({"workers": {"EU_west": {}}}, "workers.EU_west: use up to 22 lower case letters"),
        ({"workers": {"w" * 23: {}}}, "workers.wwwwwwwwwwwwwwwwwwwwwww: use up to 22"),
        ({"workers": {"eu": {"replica": 3}}}, "/workers/eu"),
        ({"commonLabels": {"tocsin/group": "x"}}, "commonLabels: tocsin/group selects the pods"),
        ({"scheduler": {"replicas": -1}}, "/scheduler/replicas"),
        ({"schedulers": {}}, "schedulers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_or_wrong_is_named(given: Manifest, said: str) -> None:
    base: Manifest = {} if said.startswith("set ") else values("default")
    with pytest.raises(HelmError, match=re.escape(said)):
        objects(base | given)


@pytest.mark.parametrize(
    "given",
    [
        {"nats": {"url": "http://tocsin:hidden@n"}},
        {"database": {"url": "mysql://tocsin:hidden@n"}},
        {"secretKeys": {"value": "hidden"}},
    ],
    ids=["of NATS", "of PostgreSQL", "that seals"],
)
def test_a_secret_that_does_not_fit_is_not_printed(given: Manifest) -> None:
    with pytest.raises(HelmError) as refused:
        objects(values("default") | given)
    assert "hidden" not in str(refused.value)


def test_a_variable_that_is_given_again_is_overridden_and_stands_once() -> None:
    def variable(value: str) -> list[Manifest]:
        return [{"name": "TOCSIN_LOG_LEVEL", "value": value}]

    given: Manifest = {
        "extraEnv": variable("WARNING"),
        "api": {"extraEnv": variable("DEBUG")},
        "worker": {"extraEnv": variable("ERROR")},
        "workers": {"eu": {"extraEnv": variable("DEBUG")}, "us": {}},
        "doctor": {"initCheck": True},
    }
    found = {
        (workload["metadata"]["name"], container["name"]): [
            each.get("value") for each in container["env"] if each["name"] == "TOCSIN_LOG_LEVEL"
        ]
        for workload in workloads(objects(values("default") | given))
        for container in containers(workload)
    }
    assert found == {
        ("tocsin-api", "doctor"): ["DEBUG"],
        ("tocsin-api", "api"): ["DEBUG"],
        ("tocsin-migrate", "migrate"): ["WARNING"],
        ("tocsin-scheduler", "scheduler"): ["WARNING"],
        ("tocsin-worker-default", "worker"): ["ERROR"],
        ("tocsin-worker-eu", "worker"): ["DEBUG"],
        ("tocsin-worker-us", "worker"): ["ERROR"],
    }


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


ROUTE = {"enabled": True, "parentRefs": [{"name": "public"}]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "port-forward svc/tocsin-api 8000:80"),
        ({"api": {"ingress": {"enabled": True, "host": "t.example.com"}}}, "The API: http://t.example.com/v1"),
        (
            {"api": {"ingress": {"enabled": True, "host": "t.example.com", "tlsSecret": "t"}}},
            "The API: https://t.example.com/v1",
        ),
        ({"api": {"httpRoute": ROUTE | {"hostnames": ["t.example.com"]}}}, "its gateway: t.example.com, path /v1"),
        ({"api": {"httpRoute": ROUTE}}, "its gateway: any host name, path /v1"),
        ({"api": {"replicas": 0}}, "get pods --selector app.kubernetes.io/instance=tocsin"),
    ],
    ids=["port", "http", "https", "route", "route of all hosts", "workers only"],
)
def test_the_notes_say_where_the_api_is(given: Manifest, said: str) -> None:
    with Chart.load(CHART) as chart:
        rendered = chart.render(values("default") | given, name=RELEASE, namespace=NAMESPACE)
    notes = rendered["tocsin/templates/NOTES.txt"]
    assert said in notes
    assert ("bootstrap" in notes) == (given != {"api": {"replicas": 0}})


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
