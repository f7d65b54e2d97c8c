"""The chart: every object is valid, points at what exists, and is confined; with each file of ci/."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]  # it has no annotations to read
import pytest
import yaml

from helm.chart import CHART
from shared.contracts.names import CHECKS_STREAM, worker_consumer
from shared.domain.region import region_problem
from shared.settings import load
from tests.operations import processes
from tests.operations.dockerfile import REPOSITORY, stages
from tests.operations.manifests import (
    CI,
    Manifest,
    component,
    containers,
    installed,
    matches,
    named,
    objects,
    of_kind,
    pod,
    values,
    workloads,
)

# Objects of operators, for which Kubernetes itself has no schema; the tests below look into them.
CUSTOM = {"HTTPRoute", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
KUBERNETES = ("1.27", "1.37")
# What the secrets hold that variables are taken from.
SECRETS = {
    "TOCSIN_NATS_URL": "nats://tocsin:secret@nats:4222",
    "TOCSIN_DATABASE_URL": "postgresql://tocsin:secret@postgres:5432/tocsin",
    "TOCSIN_SECRET_KEYS": "k" * 48,
    "TOCSIN_HEARTBEAT_URL": "https://watcher.example.com/ping",
    "TOCSIN_SMTP_URL": "smtps://tocsin:secret@mail.example.com:465",
    "NATS_PASSWORD": "secret",
    "DATABASE_PASSWORD": "secret",
}
SERVER_VARIABLES = {
    "NATS_PASSWORD",
    "DATABASE_PASSWORD",
    "PASSWORD",
    "POSTGRES_PASSWORD",
    "TOCSIN_DATABASE_PASSWORD",
}

every_file = pytest.mark.parametrize("name", CI)


@every_file
def test_it_lints_without_a_warning(name: str) -> None:
    report = helm_python.lint(CHART, values(name), strict=True)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@every_file
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_kubernetes_strictly(name: str, version: str) -> None:
    for manifest in installed(name):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, version, strict=True)


@every_file
def test_no_object_is_there_twice_and_no_name_is_too_long(name: str) -> None:
    keys = Counter((manifest["kind"], manifest["metadata"]["name"]) for manifest in installed(name))
    assert [key for key, count in keys.items() if count > 1] == []
    assert [key for key in keys if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", key[1])] == []


def test_the_longest_names_still_fit() -> None:
    given = values("evaluation") | {"fullnameOverride": "n" * 60, "workers": {"w" * 22: {}}}
    for manifest in objects(given):
        assert len(manifest["metadata"]["name"]) <= 63 - len("-0"), manifest["metadata"]["name"]


# What YAML takes for a truth value or a number where it is not quoted.
@pytest.mark.parametrize("name", ["no", "on", "123", "1e3"])
def test_names_that_look_like_something_else_stay_names(name: str) -> None:
    given: Manifest = {
        "nameOverride": name,
        "nats": {"existingSecret": name, "existingSecretKey": name},
        "database": {"existingSecret": name, "existingSecretKey": name},
        "secretKeys": {"existingSecret": name, "existingSecretKey": name},
        "serviceAccount": {"name": name},
        "scheduler": {"priorityClassName": name},
        "workers": {"default": None, name: {}, "region": {"region": name}},
        "fullnameOverride": f"a{name}",
        "networkPolicy": {"enabled": True},
        "commonLabels": {"team": name},
        "podAnnotations": {"team": name},
        "extraEnv": [{"name": "TZ", "value": name}],
    }
    bundled = {name: {"enabled": True, "storageClass": "no"} for name in ("nats", "postgresql")}
    for each in (given, given | {"bundled": bundled}):
        for manifest in objects(each, release=name):
            kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)


@every_file
def test_selectors_match_the_pods_they_mean(name: str) -> None:
    manifests = installed(name)
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(manifests)]
    selecting = of_kind(manifests, "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment", "StatefulSet")
    for manifest in selecting:
        specification = manifest["spec"]
        selector = specification.get("selector") or specification["podSelector"]
        selector = selector.get("matchLabels", selector)
        found = [labels for labels in pods if matches(selector, labels)]
        assert found, f"{manifest['metadata']['name']} selects nothing"
        if manifest["kind"] != "Service":
            assert {labels["app.kubernetes.io/component"] for labels in found} == {component(manifest)}
    deployments = [each for each in selecting if each["kind"] in {"Deployment", "StatefulSet"}]
    for manifest in deployments:
        wanted = manifest["spec"]["selector"]["matchLabels"]
        assert sum(matches(wanted, labels) for labels in pods) == 1, "each selects its own pods only"


@every_file
def test_ports_and_targets_have_the_names_that_are_asked_for(name: str) -> None:
    manifests = installed(name)
    for service in of_kind(manifests, "Service"):
        behind = [
            each
            for each in workloads(manifests)
            if matches(service["spec"]["selector"], each["spec"]["template"]["metadata"]["labels"])
        ]
        for port in service["spec"]["ports"]:
            for workload in behind:
                assert port["targetPort"] in {p["name"] for c in containers(workload) for p in c.get("ports", [])}
    for scaler in of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject"):
        target = named(manifests, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"], "two would fight over the number of pods"


@every_file
def test_every_command_and_variable_exists_in_the_code(name: str) -> None:
    for workload in workloads(installed(name)):
        for container in containers(workload):
            names = [each["name"] for each in container.get("env", [])]
            assert [key for key, count in Counter(names).items() if count > 1] == []
            if component(workload) in {"nats", "postgresql"}:
                continue
            command = container["args"][0]
            assert command in processes.commands()
            known = processes.variables("api" if command == "doctor" else command)
            assert set(names) - SERVER_VARIABLES - {"TZ"} <= known, command


@every_file
def test_every_process_accepts_the_settings_it_gets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for workload in workloads(installed(name)):
        if (process := component(workload)) not in processes.SETTINGS:
            continue
        with monkeypatch.context() as environment:
            for variable in pod(workload)["containers"][0]["env"]:
                environment.setenv(variable["name"], variable.get("value") or SECRETS[variable["name"]])
            settings = load(processes.SETTINGS[process])
        assert process == "migrate" or settings.model_fields_set >= {"nats_url", "nats_replicas"}


@every_file
def test_no_service_puts_variables_of_its_own_into_our_pods(name: str) -> None:
    for workload in workloads(installed(name)):
        if component(workload) not in {"nats", "postgresql"}:
            assert pod(workload)["enableServiceLinks"] is False


@every_file
def test_a_scheduler_holds_no_secret_but_the_way_to_nats(name: str) -> None:
    (scheduler,) = [each for each in workloads(installed(name)) if component(each) == "scheduler"]
    secrets = {each["name"] for each in containers(scheduler)[0]["env"] if "valueFrom" in each}
    assert secrets <= {"TOCSIN_NATS_URL", "NATS_PASSWORD"}


@every_file
def test_every_pod_fits_the_restricted_standard(name: str) -> None:
    for workload in workloads(installed(name)):
        specification = pod(workload)
        security = specification["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        # The one sysctl that the standard allows here.
        assert {each["name"] for each in security.get("sysctls", [])} <= {"net.ipv4.ping_group_range"}
        assert specification["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(specification)
        kinds = {key for volume in specification.get("volumes", []) for key in volume if key != "name"}
        assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}
        for container in containers(workload):
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} <= set(container["resources"])
            assert "cpu" not in container["resources"]["limits"], "throttling makes it late"


@every_file
def test_volumes_that_are_mounted_exist(name: str) -> None:
    for workload in workloads(installed(name)):
        claims = workload["spec"].get("volumeClaimTemplates", [])
        there = {each["name"] for each in pod(workload)["volumes"]} | {each["metadata"]["name"] for each in claims}
        for container in containers(workload):
            assert {mount["name"] for mount in container["volumeMounts"]} <= there


def test_the_pods_run_as_the_user_of_the_image() -> None:
    final = stages((REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))[-1]
    security = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["podSecurityContext"]
    assert final.all("USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]


def test_the_version_is_that_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["appVersion"]}"' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ["nats.conf", "postgres-roles.sh"])
def test_the_bundled_servers_are_set_up_as_in_compose(file: str) -> None:
    ours, theirs = CHART / "files" / file, REPOSITORY / "deploy" / file
    assert ours.read_bytes() == theirs.read_bytes(), f"copy deploy/{file} to helm/tocsin/files"


def test_groups_of_workers_serve_regions_that_monitors_can_name() -> None:
    workers = [each for each in workloads(installed("production")) if component(each) == "worker"]
    regions = {_variable(each, "TOCSIN_REGION") for each in workers}
    assert regions == {"eu-west", "us-east", "office_intern"}
    assert not [region for region in regions if region_problem(region)]


def test_keda_reads_the_queue_that_the_region_is_served_from() -> None:
    (scaler,) = of_kind(installed("production"), "ScaledObject")
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["type"] == "nats-jetstream"
    assert trigger["metadata"]["stream"] == CHECKS_STREAM
    assert trigger["metadata"]["consumer"] == worker_consumer("eu-west")
    assert scaler["spec"]["minReplicaCount"] >= 1, "with none nobody would run the check that comes next"


@pytest.mark.parametrize("kind", ["Ingress", "HTTPRoute"])
def test_routes_lead_to_the_api_and_not_to_its_metrics(kind: str) -> None:
    manifests = installed("production")
    (route,) = of_kind(manifests, kind)
    text = yaml.safe_dump(route)
    api = named(manifests, "Service", "tocsin-api")
    assert "name: tocsin-api" in text
    assert api["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http"}]
    assert "/metrics" not in text
    if kind == "HTTPRoute":
        assert route["spec"]["parentRefs"] == [{"name": "public", "namespace": "gateways"}]
        assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "tocsin-api", "port": 80}]


def test_only_workers_and_the_api_may_go_anywhere() -> None:
    policies = {component(each): each["spec"] for each in of_kind(installed("production"), "NetworkPolicy")}
    assert set(policies) == {"api", "scheduler", "worker", "migrate"}
    assert {name for name, policy in policies.items() if {} in policy["egress"]} == {"api", "worker"}
    for policy in policies.values():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert {} not in policy["ingress"]
    assert policies["migrate"]["ingress"] == []


def test_production_depends_on_no_secret_that_a_rendering_made() -> None:
    assert of_kind(installed("production"), "Secret") == []
    assert installed("production") == tuple(objects(values("production"))), "twice the same"


def _variable(workload: Manifest, name: str) -> Any:
    (found,) = [each["value"] for each in pod(workload)["containers"][0]["env"] if each["name"] == name]
    return found
