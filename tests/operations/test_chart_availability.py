"""What the chart promises of replacing, draining and stopping: the scheduler above all."""

from __future__ import annotations

from typing import cast

import pytest
from starlette.routing import Mount, Route

from api.app import create_app
from api.context import Context
from api.main import STOP_GRACE_SECONDS as API_GRACE
from monitoring_scheduler.settings import SchedulerSettings
from monitoring_worker.main import STOP_GRACE_SECONDS as WORKER_GRACE
from shared.observability.health import Health
from tests.operations.manifests import (
    CI,
    Manifest,
    component,
    installed,
    named,
    objects,
    of_kind,
    pod,
    values,
    workloads,
)

# Let through already, though nothing is served there yet.
AWAITED_PATHS = {"/status"}

every_file = pytest.mark.parametrize("name", CI)


def _workload(name: str, wanted: str) -> Manifest:
    return next(each for each in workloads(installed(name)) if component(each) == wanted)


@pytest.mark.parametrize("name", sorted(set(CI) - {"minimal"}))
def test_a_scheduler_is_replaced_without_a_gap(name: str) -> None:
    scheduler = _workload(name, "scheduler")["spec"]
    assert scheduler["replicas"] == 2
    assert scheduler["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    budget = named(installed(name), "PodDisruptionBudget", "tocsin-scheduler")["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"] == scheduler["selector"]


def test_schedulers_would_rather_be_apart_and_can_be_together() -> None:
    scheduler = _workload("default", "scheduler")
    (affinity,) = pod(scheduler)["affinity"].values()
    (terms,) = [affinity[key] for key in affinity]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["podAffinityTerm"]["topologyKey"] for term in terms] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for term in terms:
        assert term["podAffinityTerm"]["labelSelector"] == scheduler["spec"]["selector"]


@every_file
@pytest.mark.parametrize("process", ["scheduler", "worker"])
def test_ready_is_what_the_process_says_of_its_work(name: str, process: str) -> None:
    workload = _workload(name, process)
    (container,) = pod(workload)["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    file = variables["TOCSIN_READY_FILE"]
    assert file == SchedulerSettings.model_fields["ready_file"].default
    assert container["readinessProbe"]["exec"] == {"command": ["test", "-f", file]}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert next(each for each in pod(workload)["volumes"] if each["name"] == "tmp")["emptyDir"]


@every_file
def test_heartbeats_reach_the_api_while_postgresql_is_away(name: str) -> None:
    (container,) = pod(_workload(name, "api"))["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}, "/readyz asks PostgreSQL"


@every_file
@pytest.mark.parametrize(("process", "port"), [("api", "http"), ("scheduler", "metrics"), ("worker", "metrics")])
def test_a_loop_that_stands_still_is_noticed_and_a_slow_start_is_not_mistaken_for_it(
    name: str, process: str, port: str
) -> None:
    (container,) = pod(_workload(name, process))["containers"]
    live, start = container["livenessProbe"], container["startupProbe"]
    assert live["httpGet"] == start["httpGet"] == {"path": "/livez", "port": port}
    assert live["periodSeconds"] * live["failureThreshold"] <= 30
    assert start["periodSeconds"] * start["failureThreshold"] >= 120
    assert port in {each["name"] for each in container["ports"]}
    (number,) = [each["containerPort"] for each in container["ports"]]
    wanted = {"http": "TOCSIN_API_PORT", "metrics": "TOCSIN_METRICS_PORT"}[port]
    assert {"name": wanted, "value": str(number)} in container["env"]


def test_nothing_is_killed_before_its_own_patience_ends() -> None:
    api, worker = _workload("default", "api"), _workload("default", "worker")
    (wait,) = [int(each["lifecycle"]["preStop"]["exec"]["command"][1]) for each in pod(api)["containers"]]
    assert pod(api)["terminationGracePeriodSeconds"] >= wait + API_GRACE + 5
    assert pod(worker)["terminationGracePeriodSeconds"] >= WORKER_GRACE + 10
    scheduler = pod(_workload("default", "scheduler"))
    assert scheduler["terminationGracePeriodSeconds"] >= 10
    assert "lifecycle" not in scheduler["containers"][0], "each second before SIGTERM makes the hand-over later"


@every_file
def test_a_drain_is_never_stopped_for_good(name: str) -> None:
    for budget in of_kind(installed(name), "PodDisruptionBudget"):
        workload = next(
            each
            for each in workloads(installed(name))
            if each["spec"].get("selector") == budget["spec"]["selector"]
        )
        scalers = of_kind(installed(name), "HorizontalPodAutoscaler", "ScaledObject")
        least = [
            each["spec"].get("minReplicas") or each["spec"]["minReplicaCount"]
            for each in scalers
            if each["spec"]["scaleTargetRef"]["name"] == workload["metadata"]["name"]
        ]
        assert (least or [workload["spec"]["replicas"]])[0] > budget["spec"]["minAvailable"]


def test_every_group_that_has_more_than_one_pod_is_kept_from_being_drained_at_once() -> None:
    budgets = {each["metadata"]["name"] for each in of_kind(installed("production"), "PodDisruptionBudget")}
    assert budgets == {
        "tocsin-api",
        "tocsin-scheduler",
        "tocsin-worker-eu-west",
        "tocsin-worker-us-east",
        "tocsin-worker-office",
    }
    assert of_kind(installed("minimal"), "PodDisruptionBudget") == []


@pytest.mark.parametrize("process", ["api", "worker"])
def test_pods_spread_over_zones_and_nodes(process: str) -> None:
    workload = _workload("production", process)
    constraints = pod(workload)["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in constraints] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    for each in constraints:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"] == workload["spec"]["selector"]
    assert "topologySpreadConstraints" not in pod(_workload("minimal", process))


@pytest.mark.parametrize("name", sorted(set(CI) - {"evaluation"}))
def test_the_schema_is_migrated_before_new_pods_start_and_old_ones_stay(name: str) -> None:
    job = _workload(name, "migrate")
    assert job["kind"] == "Job"
    annotations = job["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    assert job["spec"]["activeDeadlineSeconds"] == 900
    assert job["spec"]["backoffLimit"] > 0
    assert "serviceAccountName" not in pod(job), "a hook comes before the release's own service account"


def test_the_migration_finds_its_url_before_the_release_is_there() -> None:
    manifests = installed("default")
    job = _workload("default", "migrate")
    secret = named(manifests, "Secret", "tocsin-migrate")
    assert secret["metadata"]["annotations"]["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"]
    weights = [int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in (secret, job)]
    assert weights == sorted(set(weights))
    (variable,) = pod(job)["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "tocsin-migrate", "key": "database-url"}
    assert "database-url" in secret["data"]


def test_with_the_bundled_server_the_migration_runs_beside_it() -> None:
    job = _workload("evaluation", "migrate")
    assert job["metadata"]["name"] == "tocsin-migrate-1", "a job can't be changed, so each revision has its own"
    assert "annotations" not in job["metadata"]


def test_what_a_pod_only_reads_at_its_start_restarts_it_when_it_changes() -> None:
    def mark(**changes: Manifest) -> str:
        found = objects(values("default") | changes)
        scheduler = named(found, "Deployment", "tocsin-scheduler")
        return str(scheduler["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"])

    assert mark() == mark(api={"replicas": 5})
    assert mark() != mark(nats={"url": "nats://elsewhere:4222"})


def test_doctor_looks_before_the_api_starts_where_that_is_wanted() -> None:
    (check,) = pod(_workload("production", "api"))["initContainers"]
    assert check["args"] == ["doctor", "--servers"]
    assert check["env"] == pod(_workload("production", "api"))["containers"][0]["env"]
    assert "initContainers" not in pod(_workload("default", "api"))


def test_every_route_but_health_and_metrics_is_let_through() -> None:
    (ingress,) = of_kind(installed("production"), "Ingress")
    public = [each["path"] for each in ingress["spec"]["rules"][0]["http"]["paths"]]
    # Nothing is asked of the context while routes are only listed.
    app = create_app(cast("Context", None), Health({}))
    routes = {*app.openapi()["paths"], *(each.path for each in app.routes if isinstance(each, Route | Mount))}
    left_out = {path for path in routes if not any(path == each or path.startswith(f"{each}/") for each in public)}
    assert left_out == {"/livez", "/readyz", "/metrics"}
    assert {each for each in public if not any(path.startswith(each) for path in routes)} <= AWAITED_PATHS
