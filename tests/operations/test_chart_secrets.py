"""Secrets are made once, by Helm itself against an API that keeps what it is given, and outlive what may happen."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

import pytest
from helm_python import Config, HelmError

from helm.chart import CHART
from tests.operations.kubernetes import Cluster, running
from tests.operations.manifests import Manifest, named, objects, values

NAMESPACE = "monitoring"
MADE = {
    "tocsin-secret-keys": {"secret-keys"},
    "tocsin-nats": {"password"},
    "tocsin-postgresql": {"password", "superuser-password"},
}
EVALUATION = values("evaluation")


@pytest.fixture
def cluster() -> Iterator[tuple[Cluster, Config]]:
    with (
        running() as (found, kubeconfig),
        Config(kubeconfig_content=kubeconfig, namespace=NAMESPACE, storage_driver="memory") as config,
    ):
        yield found, config


def _made(cluster: Cluster) -> dict[str, Manifest]:
    return {name: dict(cluster.secret(NAMESPACE, name)["data"]) for name in MADE}


def test_an_upgrade_keeps_every_secret_and_changes_the_rest(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    before = _made(there)
    assert {name: set(data) for name, data in before.items()} == MADE
    helm.upgrade(CHART, "tocsin", EVALUATION | {"scheduler": {"replicas": 3}})
    scheduler = there.objects[f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/tocsin-scheduler"]
    assert scheduler["spec"]["replicas"] == 3
    assert _made(there) == before


def test_what_was_made_is_long_and_different_each_time(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    secrets = [b64decode(value).decode() for data in _made(there).values() for value in data.values()]
    assert len(set(secrets)) == len(secrets)
    assert all(len(secret) == 48 and secret.isalnum() for secret in secrets), "they become part of URLs"


def test_secrets_outlive_the_release_and_are_found_again(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    before = _made(there)
    helm.uninstall("tocsin")
    assert f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/tocsin-api" not in there.objects
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    assert _made(there) == before


def test_a_lost_key_stops_the_upgrade_instead_of_being_replaced(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    del there.objects[f"/api/v1/namespaces/{NAMESPACE}/secrets/tocsin-secret-keys"]
    with pytest.raises(HelmError, match="tocsin-secret-keys is not in namespace monitoring: restore it"):
        helm.upgrade(CHART, "tocsin", EVALUATION)


OUTSIDE: Manifest = {
    "nats": {"existingSecret": "servers"},
    "database": {"existingSecret": "servers"},
    "secretKeys": {"existingSecret": "tocsin-secret-keys"},
    "commonLabels": {"team": "platform"},
    # A hook would be waited for, and nothing runs here.
    "migrations": {"enabled": False},
}


def test_secrets_stay_a_part_of_the_release_so_that_a_roll_back_finds_them(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)
    before = _made(there)
    helm.upgrade(CHART, "tocsin", OUTSIDE)
    assert _made(there) == before
    for name in MADE:
        assert there.secret(NAMESPACE, name)["metadata"]["labels"]["team"] == "platform", "it was left out"
    helm.rollback("tocsin", version=1)
    assert _made(there) == before


def test_a_secret_that_somebody_else_made_is_left_alone(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tocsin-secret-keys", "namespace": NAMESPACE},
        "data": {"secret-keys": "a2V5"},
    }
    there.objects[f"/api/v1/namespaces/{NAMESPACE}/secrets/tocsin-secret-keys"] = foreign
    helm.install(CHART, "tocsin", OUTSIDE, namespace=NAMESPACE)
    assert there.secret(NAMESPACE, "tocsin-secret-keys") is foreign


@pytest.mark.parametrize("server", ["nats", "postgresql"])
def test_a_volume_without_its_secret_gets_no_other_password(cluster: tuple[Cluster, Config], server: str) -> None:
    there, helm = cluster
    claim = f"data-tocsin-{server}-0"
    there.objects[f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{claim}"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "namespace": NAMESPACE},
    }
    with pytest.raises(HelmError, match=f"secret tocsin-{server} is not in .*, or delete the claim {claim}"):
        helm.install(CHART, "tocsin", EVALUATION, namespace=NAMESPACE)


def test_an_installation_whose_migration_failed_can_be_repeated(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    # Nothing runs here, so the job of the migration never ends.
    with pytest.raises(HelmError, match="pre-install"):
        helm.install(CHART, "tocsin", values("default"), namespace=NAMESPACE, timeout=1)
    helm.upgrade(CHART, "tocsin", values("default") | {"migrations": {"enabled": False}})
    assert there.secret(NAMESPACE, "tocsin-secret-keys")["data"]["secret-keys"]


def test_a_server_that_is_bundled_later_gets_its_password_then(cluster: tuple[Cluster, Config]) -> None:
    there, helm = cluster
    first = EVALUATION | {"bundled": {"postgresql": {"enabled": True}}, "nats": {"url": "nats://n:4222"}}
    helm.install(CHART, "tocsin", first, namespace=NAMESPACE)
    helm.upgrade(CHART, "tocsin", EVALUATION)
    assert set(_made(there)) == set(MADE)


def test_values_are_put_into_a_secret_and_an_existing_one_is_left_alone() -> None:
    key = "k" * 32
    given = objects(values("default") | {"secretKeys": {"value": key}})
    assert b64decode(named(given, "Secret", "tocsin-secret-keys")["data"]["secret-keys"]).decode() == key
    urls = named(given, "Secret", "tocsin")["data"]
    assert {name: b64decode(url).decode().partition(":")[0] for name, url in urls.items()} == {
        "nats-url": "nats",
        "database-url": "postgresql",
    }
    assert [each["kind"] for each in objects(values("minimal")) if each["kind"] == "Secret"] == []
