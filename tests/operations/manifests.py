"""The rendered chart as objects, with the few questions that tests ask them."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from helm.chart import CHART, RELEASE, render

Manifest = dict[str, Any]
CI = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))


def values(name: str) -> Manifest:
    """The values of one file of ci/."""
    loaded: Manifest = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def installed(name: str) -> tuple[Manifest, ...]:
    """What an installation with a file of ci/ consists of."""
    return tuple(objects(values(name)))


def objects(given: Manifest, *, release: str = RELEASE) -> list[Manifest]:
    texts = render(given, release=release).values()
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(manifests: tuple[Manifest, ...] | list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def named(manifests: tuple[Manifest, ...] | list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [each for each in of_kind(manifests, kind) if each["metadata"]["name"] == name]
    return found


def workloads(manifests: tuple[Manifest, ...] | list[Manifest]) -> list[Manifest]:
    return of_kind(manifests, "Deployment", "StatefulSet", "Job")


def pod(workload: Manifest) -> Manifest:
    """The pod specification of a workload."""
    specification: Manifest = workload["spec"]["template"]["spec"]
    return specification


def containers(workload: Manifest) -> list[Manifest]:
    return [*pod(workload).get("initContainers", []), *pod(workload)["containers"]]


def component(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def matches(selector: Manifest, labels: Manifest) -> bool:
    return selector.items() <= labels.items()
