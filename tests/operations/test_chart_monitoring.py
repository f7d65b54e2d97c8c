"""Alerts and dashboard: each metric exists, each alert is explained, what is scraped carries what they ask for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from helm.chart import CHART
from tests.operations import processes
from tests.operations.dockerfile import REPOSITORY
from tests.operations.manifests import installed, matches, objects, of_kind, values

# Of other exporters: cert-manager and the ingress controller.
FOREIGN = {
    "certmanager_certificate_expiration_timestamp_seconds",
    "nginx_ingress_controller_ssl_expire_time_seconds",
}
WORD = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b(?! *\()")
MATCHERS = re.compile(r"\{[^}]*\}")
GROUPING = re.compile(r"\b(by|without) *\([^)]*\)")

RULES: list[dict[str, Any]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))["rules"]
DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{panel["title"]: " ; ".join(each["expr"] for each in panel["targets"]) for panel in DASHBOARD["panels"]},
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_exported(name: str) -> None:
    bare = GROUPING.sub(" ", MATCHERS.sub(" ", EXPRESSIONS[name]))
    asked = set(WORD.findall(bare))
    assert asked, bare
    assert asked <= processes.metric_names() | FOREIGN


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_series_is_of_this_release_and_brackets_are_closed(name: str) -> None:
    expression = EXPRESSIONS[name]
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)
    for found in re.finditer(r"tocsin_\w+(\{[^}]*\})?", expression):
        assert "SERIES" in (found[1] or "") or '$release"' in (found[1] or "")


def test_the_labels_that_are_grouped_by_exist() -> None:
    given = {"le", "pod", *processes.metric_labels()}
    for expression in EXPRESSIONS.values():
        for found in re.finditer(r"\bby *\(([^)]*)\)", expression):
            assert {label.strip() for label in found[1].split(",")} <= given, expression


def test_the_alerts_that_matter_are_there() -> None:
    assert [rule["alert"] for rule in RULES] == [
        "TocsinNotScraped",
        "TocsinNoLeader",
        "TocsinSchedulerAlone",
        "TocsinLeaderUnsettled",
        "TocsinDispatchLate",
        "TocsinSlotsMissed",
        "TocsinWorkNotDone",
        "TocsinMonitorsBlind",
        "TocsinQueueOld",
        "TocsinResultsLate",
        "TocsinConsumersUnsettled",
        "TocsinDeadLetters",
        "TocsinNotificationsLost",
        "TocsinNotificationsDelayed",
        "TocsinPingsRefused",
        "TocsinJobSilent",
        "TocsinCertificateExpires",
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_alert_says_what_is_wrong_and_has_a_section_that_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    page = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {rule['alert']}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, f"docs/alerts.md has no section {rule['alert']}"
    assert "**Means.**" in section[1]
    assert "**Do.**" in section[1]


def test_the_page_explains_no_alert_that_is_gone() -> None:
    page = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (Tocsin\w+)$", page, re.MULTILINE)) == {rule["alert"] for rule in RULES}


def test_the_rules_are_rendered_for_the_release() -> None:
    (rendered,) = of_kind(installed("production"), "PrometheusRule")
    (group,) = rendered["spec"]["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [rule["alert"] for rule in RULES]
    text = yaml.safe_dump(rendered)
    assert "SERIES" not in text
    assert "HOST" not in text
    assert "CERTIFICATE" not in text
    for rule in group["rules"]:
        assert rule["labels"]["team"] == "platform"
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.com/tocsin/alerts#{anchor}"
    leader = next(rule["expr"] for rule in group["rules"] if rule["alert"] == "TocsinNoLeader")
    assert 'namespace="monitoring",app_kubernetes_io_instance="tocsin"' in leader


def test_alerts_can_be_left_out_and_that_of_the_certificate_needs_one() -> None:
    given = values("default") | {
        "metrics": {"prometheusRule": {"enabled": True, "disabled": ["TocsinQueueOld"]}},
    }
    (rendered,) = of_kind(objects(given), "PrometheusRule")
    names = {rule["alert"] for rule in rendered["spec"]["groups"][0]["rules"]}
    assert names == {rule["alert"] for rule in RULES} - {"TocsinQueueOld", "TocsinCertificateExpires"}


def test_every_process_is_scraped_once_with_the_labels_that_alerts_ask_for() -> None:
    manifests = installed("production")
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    ports = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
    scraped = {
        service["metadata"]["labels"]["app.kubernetes.io/component"]: [
            port for port in service["spec"]["ports"] if port["name"] in ports
        ]
        for service in of_kind(manifests, "Service")
        if matches(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        and service["metadata"]["labels"]["app.kubernetes.io/component"] in expression["values"]
    }
    assert {name: len(found) for name, found in scraped.items()} == {"api": 1, "scheduler": 1, "worker": 1}
    assert "app.kubernetes.io/instance" in monitor["spec"]["targetLabels"]
    # Or the label "job" of the metrics of jobs would be renamed.
    assert all(endpoint["honorLabels"] is True for endpoint in monitor["spec"]["endpoints"])


def test_the_dashboard_is_given_to_grafana_whole() -> None:
    (found,) = [each for each in of_kind(installed("production"), "ConfigMap") if "tocsin.json" in each["data"]]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["tocsin.json"]) == DASHBOARD
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [(x, y) for panel in panels for x, y in _cells(panel["gridPos"])]
    assert len(cells) == len(set(cells)), "panels overlap"


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    assert place["x"] + place["w"] <= 24
    return [
        (x, y)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
