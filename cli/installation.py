"""What ``tocsin up`` runs: the servers and processes of one machine, their addresses and their environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.data_directory import DataDirectory
from cli.errors import UsageError
from cli.readiness import is_free, ready_over_http
from cli.supervisor import Child
from shared.embedded import postgres
from shared.embedded.exec_child import wrap
from shared.embedded.nats import Nats
from shared.embedded.postgres import Postgres

LOOPBACK = "127.0.0.1"
# Longer than a worker takes to finish the checks in hand, and than a checkpoint of the database.
_STOP_SECONDS = 30.0
_EVERY_INTERFACE = {"0.0.0.0": LOOPBACK, "::": "::1", "": LOOPBACK}  # noqa: S104 only compared with


@dataclass(frozen=True, slots=True)
class UpOptions:
    """``port`` 0 asks for a free one, which is kept for the next start."""

    data_directory: Path
    host: str
    port: int
    schedulers: int
    workers: int


class Installation:
    """Settled before the first process starts.

    Raises ``UsageError`` and ``EmbeddedServerError`` where it cannot be.

    ``postgres`` and ``nats`` are None when the environment names servers that run elsewhere.
    """

    def __init__(self, options: UpOptions, environment: Mapping[str, str], directory: DataDirectory) -> None:
        self._options = options
        self._outer = environment
        self._directory = directory
        self._secrets = directory.secret_values()
        self.postgres_version = "" if "TOCSIN_DATABASE_URL" in environment else postgres.version()
        directory.check_version(int(self.postgres_version.split(".")[0]) if self.postgres_version else None)
        self.api_port = self._choose_api_port()
        self.postgres = Postgres(directory.postgres) if self.postgres_version else None
        self.nats = None if "TOCSIN_NATS_URL" in environment else self._embedded_nats()

    @property
    def allows_private_targets(self) -> bool:
        """Whoever reaches an API on loopback is on this machine already: checks may go where that person can."""
        return _is_loopback(self._options.host) and "TOCSIN_ALLOW_PRIVATE_TARGETS" not in self._outer

    @property
    def api_url(self) -> str:
        host = self._api_host
        return f"http://[{host}]:{self.api_port}" if ":" in host else f"http://{host}:{self.api_port}"

    def environment(self) -> dict[str, str]:
        """What every process of ours reads. Complete once the servers are prepared."""
        ours = {"TOCSIN_SECRET_KEYS": self._secrets["secret_keys"], "TOCSIN_LOG_FORMAT": "json"}
        if self.postgres:
            ours["TOCSIN_DATABASE_URL"] = self.postgres.url()
        if self.nats:
            ours["TOCSIN_NATS_URL"] = self.nats.url
        if self.allows_private_targets:
            ours["TOCSIN_ALLOW_PRIVATE_TARGETS"] = "true"
        return {**ours, **self._outer}

    def servers(self) -> list[Child]:
        children = []
        if self.postgres:
            children.append(_postgres_child(self.postgres, self._outer))
        if self.nats:
            children.append(_nats_child(self.nats, self._outer))
        return children

    def api(self) -> Child:
        listen = {"TOCSIN_API_HOST": self._options.host, "TOCSIN_API_PORT": str(self.api_port)}
        return self._child("api", "api.main", self._api_host, self.api_port, listen)

    def schedulers(self) -> list[Child]:
        return self._numbered("scheduler", "monitoring_scheduler.main", self._options.schedulers)

    def workers(self) -> list[Child]:
        return self._numbered("worker", "monitoring_worker.main", self._options.workers)

    @property
    def _api_host(self) -> str:
        return _EVERY_INTERFACE.get(self._options.host, self._options.host)

    def _numbered(self, kind: str, module: str, count: int) -> list[Child]:
        children = []
        for number in range(1, count + 1):
            name = f"{kind}-{number}"
            port = self._loopback_port(name)
            listen = {"TOCSIN_METRICS_HOST": LOOPBACK, "TOCSIN_METRICS_PORT": str(port)}
            children.append(self._child(name, module, LOOPBACK, port, listen))
        return children

    def _child(self, name: str, module: str, host: str, port: int, listen: Mapping[str, str]) -> Child:
        url_host = f"[{host}]" if ":" in host else host
        own = {**listen, "TOCSIN_READY_FILE": str(self._directory.ready_file(name))}
        return Child(
            name=name,
            # -P: a folder "api" where the command was typed must not be taken for ours.
            command=wrap((sys.executable, "-P", "-m", module)),
            environment={**self.environment(), **own},
            ready=lambda: ready_over_http(host, port),
            metrics_url=f"http://{url_host}:{port}/metrics",
            stop_seconds=_STOP_SECONDS,
        )

    def _choose_api_port(self) -> int:
        host, port = self._options.host, self._options.port
        try:
            if port == 0:
                return self._directory.port("api", lambda number: is_free(host, number))
            free = is_free(host, port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
            ) from None
        if not free:
            raise UsageError(f"port {port} is in use: choose another with --port, or --port 0 for a free one")
        return port

    def _loopback_port(self, name: str) -> int:
        return self._directory.port(name, lambda number: is_free(LOOPBACK, number))

    def _embedded_nats(self) -> Nats:
        return Nats(
            self._directory.nats,
            port=self._loopback_port("nats"),
            monitor_port=self._loopback_port("nats-monitor"),
            password=self._secrets["nats_password"],
        )


def _postgres_child(server: Postgres, environment: Mapping[str, str]) -> Child:
    return Child(
        name="postgres",
        command=server.command,
        environment={"PATH": environment.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
        ready=server.ready,
        stop_signal=postgres.STOP_SIGNAL,
        stop_seconds=_STOP_SECONDS,
    )


def _nats_child(server: Nats, environment: Mapping[str, str]) -> Child:
    return Child(
        name="nats",
        command=server.command,
        environment={"PATH": environment.get("PATH", ""), "TZ": "UTC"},
        ready=server.ready,
        metrics_url=server.metrics_url,
    )


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")
