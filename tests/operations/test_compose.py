"""docker-compose.yml: valid, in step with the code, and what it starts NATS and PostgreSQL with works."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import nats as nats_client
import pytest

from api.main import STOP_GRACE_SECONDS as API_GRACE
from monitoring_worker.main import STOP_GRACE_SECONDS as WORKER_GRACE
from shared.db.migrate import upgrade
from shared.db.session import Database
from shared.embedded.postgres import installation
from shared.settings import load
from shared.testing.nats import find_nats_server, free_port
from shared.testing.postgres import PostgresServer
from tests.operations import compose, processes
from tests.operations.dockerfile import REPOSITORY, stages

# Digits with an e look like a number to NATS, and must not be read as one.
SECRETS = {
    "POSTGRES_PASSWORD": "superuser",
    "TOCSIN_DATABASE_PASSWORD": "12e4",
    "TOCSIN_NATS_PASSWORD": "12e4",
    "TOCSIN_SECRET_KEYS": "k" * 32,
}
FILES = ("docker-compose.yml", "docker-compose.dev.yml")
PROJECT = compose.read(FILES[0], SECRETS)
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("tocsin:")}
SERVERS = {"nats", "postgres"}


@pytest.mark.parametrize("name", FILES)
def test_the_file_follows_the_compose_specification(name: str) -> None:
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.validate(compose.read(name, SECRETS), schema, jsonschema.Draft7Validator)


def test_it_starts_what_the_product_consists_of() -> None:
    assert set(OURS) == {"migrate", "api", "scheduler-1", "scheduler-2", "worker-1", "worker-2"}
    assert set(SERVICES) - set(OURS) == SERVERS
    assert {service["image"] for service in OURS.values()} == {"tocsin:0.1.0"}
    assert set(PROJECT["volumes"]) == SERVERS


@pytest.mark.parametrize("name", OURS)
def test_every_command_and_variable_exists_in_the_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = OURS[name]["command"]
    environment = OURS[name]["environment"]
    assert command in processes.commands()
    assert set(environment) <= processes.variables(command)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    load(processes.SETTINGS[command])


def test_the_override_only_changes_what_exists() -> None:
    override = compose.read(FILES[1], {})["services"]
    assert set(override) <= set(SERVICES)
    for name in set(override) & set(OURS):
        (command,) = OURS[name]["command"]
        assert set(override[name]["environment"]) - {"PYTHONPATH"} <= processes.variables(command)


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    # What the entry point of its image failed without, when each was taken away in turn.
    needed = ["CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"]
    assert service.get("cap_add", []) == (needed if name == "postgres" else [])
    assert "privileged" not in service


def test_nothing_but_the_api_is_published_and_that_on_loopback() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "api": ["127.0.0.1:8000:8000"]
    }
    assert PROJECT["networks"]["inside"] == {"internal": True}
    assert all(SERVICES[name]["networks"] == ["inside"] for name in SERVERS)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_everything_that_stays_is_watched_and_restarted(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_a_slow_start_is_waited_for(name: str) -> None:
    """On two busy cores an installation took 90 s to become healthy; ``up --wait`` gave up on shorter periods."""
    probe = SERVICES[name]["healthcheck"]
    assert probe["start_period"] == "300s"
    assert probe["timeout"] == "10s", "a probe is a process, which starts slowly as well"


@pytest.mark.parametrize("name", SERVICES)
def test_logs_do_not_fill_the_disk(name: str) -> None:
    assert SERVICES[name]["logging"] == {"driver": "local"}, "the driver that rotates by itself"


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_a_replica_as_compose_replaces_all_of_a_service_at_once(name: str) -> None:
    assert "replicas" not in SERVICES[name].get("deploy", {})


def test_the_upgrade_replaces_one_scheduler_and_one_worker_at_a_time() -> None:
    text = (REPOSITORY / "docs" / "install-compose.md").read_text(encoding="utf-8")
    section = text.partition("## Upgrade")[2].partition("\n## ")[0]
    named = re.search(r"for service in ([^;]+);", section)
    assert named
    pairs = [name for name in OURS if name.startswith(("scheduler", "worker"))]
    assert named[1].split() == pairs
    assert "--no-deps" not in section, "before Compose 2.29.3, the next up makes such containers anew, at once"


@pytest.mark.parametrize("name", ["api", "scheduler-1", "scheduler-2", "worker-1", "worker-2"])
def test_nothing_starts_before_its_servers_are_healthy_and_the_schema_is_there(name: str) -> None:
    assert SERVICES[name]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "nats": {"condition": "service_healthy"},
        "postgres": {"condition": "service_healthy"},
    }


def test_nothing_is_killed_before_its_own_patience_ends() -> None:
    def grace(name: str) -> int:
        return int(SERVICES[name]["stop_grace_period"].removesuffix("s"))

    assert grace("api") >= API_GRACE + 5
    assert grace("worker-1") == grace("worker-2") >= WORKER_GRACE + 10


def test_the_example_names_every_secret_and_holds_none() -> None:
    lines = (REPOSITORY / "deploy" / ".env.example").read_text(encoding="utf-8").splitlines()
    pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert {name for name, value in pairs.items() if not value} == compose.required(FILES[0])
    assert pairs["TOCSIN_PUBLISH"].startswith("127.0.0.1:")


@pytest.mark.parametrize("name", ["worker-1", "worker-2"])
def test_pings_are_allowed_to_the_group_of_the_image(name: str) -> None:
    final = stages((REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))[-1]
    group = final.all("USER")[0].partition(":")[2]
    assert SERVICES[name]["sysctls"] == {"net.ipv4.ping_group_range": f"{group} {group}"}


async def test_nats_runs_with_its_file_keeps_every_message_and_asks_for_the_password(tmp_path: Path) -> None:
    client, monitor = free_port(), free_port()
    text = (REPOSITORY / PROJECT["configs"]["nats"]["file"]).read_text(encoding="utf-8")
    for there, here in {"0.0.0.0:4222": f"127.0.0.1:{client}", "0.0.0.0:8222": f"127.0.0.1:{monitor}"}.items():
        assert there in text
        text = text.replace(there, here)
    (tmp_path / "nats.conf").write_text(text.replace('"/data"', json.dumps(str(tmp_path / "data"))))
    server = _start_nats(tmp_path)
    try:
        url = OURS["api"]["environment"]["TOCSIN_NATS_URL"].replace("nats:4222", f"127.0.0.1:{client}")
        assert json.loads((await _greeting(client)).removeprefix(b"INFO "))["auth_required"] is True
        connection = await nats_client.connect(url, allow_reconnect=False)
        await connection.close()
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            probe = SERVICES["nats"]["healthcheck"]["test"][-1].replace("8222", str(monitor))
            assert (await http.get(probe)).json() == {"status": "ok"}
            state = (await http.get(f"http://127.0.0.1:{monitor}/jsz?config=true")).json()
        assert state["config"]["sync_always"] is True
    finally:
        server.terminate()
        await asyncio.to_thread(server.wait, 60)


async def test_the_role_it_creates_may_migrate_and_is_bound_by_row_level_security(tmp_path: Path) -> None:
    script = (REPOSITORY / PROJECT["configs"]["postgres-roles"]["file"]).read_text(encoding="utf-8")
    # The server that tests start has a role of this name: another name.
    script = re.sub(r"\btocsin\b", "composed", script)
    # Not the server of the other tests: its roles belong to the login role that made them.
    async with PostgresServer(tmp_path) as postgres:
        host = postgres.superuser_url.rpartition("host=")[2]
        assert "does not exist" in await asyncio.to_thread(_probe_postgres, host), "a first start that broke off"
        await asyncio.to_thread(_run_as_superuser, script, host)
        assert await asyncio.to_thread(_probe_postgres, host) == ""
        url = f"postgresql://composed:12e4@/composed?host={host}"
        await asyncio.to_thread(upgrade, url)
        async with Database(url, application_name="tests") as database:
            await database.verify()


def _start_nats(directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(find_nats_server()), "-c", str(directory / "nats.conf"), "-l", str(directory / "log")],
        env={**os.environ, **SERVICES["nats"]["environment"]},
    )


def _run_as_superuser(script: str, host: str) -> None:
    environment = {
        "PATH": f"{installation() / 'bin'}:/usr/bin:/bin",
        "PGHOST": host,
        "POSTGRES_USER": "postgres",
        "TOCSIN_DATABASE_PASSWORD": SECRETS["TOCSIN_DATABASE_PASSWORD"],
    }
    ended = subprocess.run(
        ["/bin/sh", "-euc", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def _probe_postgres(host: str) -> str:
    """What the health check says on standard error; nothing when PostgreSQL is healthy."""
    word, *command = SERVICES["postgres"]["healthcheck"]["test"]
    assert word == "CMD"
    names = {"127.0.0.1": host, "tocsin": "composed"}
    ended = subprocess.run(
        [str(installation() / "bin" / command[0]), *(names.get(part, part) for part in command[1:])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode == 0) is (ended.stderr == "")
    return ended.stderr


async def _greeting(port: int) -> bytes:
    async with asyncio.timeout(60):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            line = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return line
