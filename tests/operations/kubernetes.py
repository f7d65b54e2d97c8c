"""As much of a Kubernetes API as Helm needs to install, upgrade and uninstall: objects are kept, nothing runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import yaml

Body = dict[str, Any]
# By group and version: the kinds that the chart may make without operators.
RESOURCES = {
    "v1": {
        "secrets": "Secret",
        "configmaps": "ConfigMap",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "batch/v1": {"jobs": "Job"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
}


class Cluster:
    """The objects, by the path of each."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self._version = 0

    def secret(self, namespace: str, name: str) -> Body:
        return self.objects[f"/api/v1/namespaces/{namespace}/secrets/{name}"]

    def answer(self, method: str, path: str, body: Body | None) -> tuple[int, Body]:
        """The status and the body that the API gives."""
        if (known := _discovery(path)) is not None:
            return 200, known
        match method:
            case "GET" if path in self.objects:
                return 200, self.objects[path]
            case "POST" if body is not None:
                return 201, self._keep(f"{path}/{body['metadata']['name']}", body)
            case "PUT" | "PATCH" if body is not None:
                return 200, self._keep(path, _merged(self.objects.get(path, {}), body))
            case "DELETE" if path in self.objects:
                return 200, self.objects.pop(path)
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    def _keep(self, path: str, body: Body) -> Body:
        self._version += 1
        body["metadata"] |= {"uid": path, "resourceVersion": str(self._version)}
        self.objects[path] = body
        return body


def _merged(old: Body, new: Body) -> Body:
    both = {key: (old[key], new[key]) for key in old.keys() & new.keys()}
    deep = {key: _merged(*pair) for key, pair in both.items() if all(isinstance(each, dict) for each in pair)}
    return old | new | deep


def _discovery(path: str) -> Body | None:
    groups = [name for name in RESOURCES if "/" in name]
    for name, kinds in RESOURCES.items():
        if path == _root(name):
            return {"kind": "APIResourceList", "groupVersion": name, "resources": _resources(kinds)}
        if path == f"/openapi/v3{_root(name)}":
            return _openapi(name, kinds)
    versions = [{"groupVersion": name, "version": name.partition("/")[2]} for name in groups]
    documents: dict[str, Body] = {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [
                {"name": each["groupVersion"].partition("/")[0], "versions": [each], "preferredVersion": each}
                for each in versions
            ],
        },
        "/openapi/v3": {
            "paths": {_root(name)[1:]: {"serverRelativeURL": f"/openapi/v3{_root(name)}"} for name in RESOURCES}
        },
    }
    return documents.get(path)


def _root(name: str) -> str:
    return f"/apis/{name}" if "/" in name else f"/api/{name}"


def _resources(kinds: dict[str, str]) -> list[Body]:
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    return [
        {"name": key, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
        for key, kind in kinds.items()
    ]


def _openapi(name: str, kinds: dict[str, str]) -> Body:
    """Says that the server checks fields itself, so that Helm does not ask for their schema."""
    group, _, version = name.rpartition("/")
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {
        f"{_root(name)}/namespaces/{{namespace}}/{key}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
            }
        }
        for key, kind in kinds.items()
    }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": version}, "paths": paths}


@contextmanager
def running() -> Iterator[tuple[Cluster, str]]:
    """A cluster, and a kubeconfig that leads to it."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body go in two packets; the second would wait 40 ms for the acknowledgement of the first.
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = cluster.answer(self.command, urlsplit(self.path).path, yaml.safe_load(text))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 names that the base class asks for

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield cluster, _kubeconfig(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _kubeconfig(server: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "test", "user": {}}],
        }
    )
