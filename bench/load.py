"""The whole path under load: ``tocsin up``, many monitors, and the books compared afterwards.

It starts ``tocsin up`` on a fresh data directory and a local target in another process, creates the monitors over
REST, lets them run, and then reads PostgreSQL: which slots were due (from the schedule periods), which have a
result, how late each check began. CPU is the growth of user and system time in /proc of every process that
``processes.json`` names and of the supervisor, between two moments while all monitors run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import trustme

from shared.domain.clock import SystemClock, to_milliseconds
from shared.domain.slots import Cadence, slots_between
from shared.testing.tocsin import Tocsin

TICKS = os.sysconf("SC_CLK_TCK")
SERVERS = ("nats", "postgres")
clock = SystemClock()


@dataclass(frozen=True)
class Usage:
    """CPU milliseconds and proportional set size in MiB of one component with its children."""

    cpu_ms: float
    pss_mib: float


def descendants(pid: int) -> list[int]:
    """A process and all below it (PostgreSQL serves each connection in a child)."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    return found


def usage_of(pids: list[int]) -> Usage:
    cpu = pss = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # Own time and that of children that ended (fields 14 to 17 of proc(5)).
            cpu += sum(int(fields[index]) for index in (11, 12, 13, 14)) * 1000 / TICKS
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            pss += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
    return Usage(cpu, pss)


def usages(tocsin: Tocsin) -> dict[str, Usage]:
    components = {"up": usage_of([tocsin.pid])}
    for name, process in tocsin.processes().items():
        components[name] = usage_of(descendants(process["pid"]))
    return components


@contextlib.contextmanager
def target(folder: Path, *, tls: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """A target's URL, and what the environment needs so that its certificate is trusted."""
    command = [sys.executable, "-m", "bench.targets"]
    environment = {}
    if tls:
        authority = trustme.CA()
        leaf = folder / "leaf.pem"
        for part in (authority.issue_cert("localhost").private_key_and_cert_chain_pem,):
            leaf.write_bytes(part.bytes())
        authority.cert_pem.write_to_path(str(folder / "roots.pem"))
        command += ["--certificate", str(leaf)]
        environment["SSL_CERT_FILE"] = str(folder / "roots.pem")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield f"{'https' if tls else 'http'}://localhost:{port}/", environment
        finally:
            process.terminate()


async def create_monitors(tocsin: Tocsin, url: str, number: int, interval: int) -> None:
    gate = asyncio.Semaphore(8)

    async def create(index: int) -> None:
        async with gate:
            await tocsin.create_monitor(
                name=f"m{index}", interval_seconds=interval, check={"kind": "http", "url": url}
            )

    await asyncio.gather(*(create(index) for index in range(number)))


async def books(database_url: str, since_ms: int, until_ms: int) -> dict[str, Any]:
    """Due slots against results in ``(since, until]``, and how late the checks began, in milliseconds."""
    connection = await asyncpg.connect(database_url, server_settings={"role": "tocsin_system"})
    try:
        periods = await connection.fetch("SELECT monitor_id, interval_ms, starts_at, regions FROM schedule_periods")
        stored = await connection.fetch(
            "SELECT monitor_id, region, scheduled_at, started_at, status, total_ms FROM check_results"
            " WHERE scheduled_at > $1 AND scheduled_at <= $2 AND trigger = 'schedule'",
            *(datetime.fromtimestamp(moment / 1000, UTC) for moment in (since_ms, until_ms)),
        )
    finally:
        await connection.close()
    due: set[tuple[UUID, str, int]] = set()
    for row in periods:
        cadence = Cadence(row["monitor_id"], row["interval_ms"], to_milliseconds(row["starts_at"]))
        slots = list(slots_between(cadence, since_ms, until_ms))
        due |= {(cadence.monitor_id, region, slot) for region in row["regions"] for slot in slots}
    results = {(row["monitor_id"], row["region"], to_milliseconds(row["scheduled_at"])): row for row in stored}
    run = [row for row in stored if row["started_at"]]
    late = sorted((row["started_at"] - row["scheduled_at"]).total_seconds() * 1000 for row in run)
    return {
        "due": len(due),
        "results": len(results),
        "rows": len(stored),
        "without result": len(due - results.keys()),
        "without slot": len(results.keys() - due),
        "missed": sum(row["status"] == "missed" for row in stored),
        "not up": sum(row["status"] not in ("up", "missed") for row in stored),
        "late p50": round(late[len(late) // 2], 1),
        "late p99": round(late[int(len(late) * 0.99)], 1),
        "late max": round(late[-1], 1),
        "check p50": round(statistics.median(row["total_ms"] for row in run), 2),
    }


def database_url_of(tocsin: Tocsin) -> str:
    """The address that the API of this installation was given, from its environment."""
    pid = tocsin.processes()["api"]["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(item.decode().partition("=")[2] for item in environment if item.startswith(b"TOCSIN_DATABASE_URL="))


async def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, target(Path(folder), tls=arguments.tls) as (url, environment):
        workers = ("--workers", str(arguments.workers))
        async with Tocsin(Path(folder) / "data", *workers, environment=environment) as tocsin:
            print(f"creating {arguments.monitors} monitors …", flush=True)
            await create_monitors(tocsin, url, arguments.monitors, arguments.interval)
            await asyncio.sleep(arguments.interval + 5)  # past the first slots and the creation's own load
            before, since = usages(tocsin), clock.now_ms()
            print(f"measuring for {arguments.seconds} s …", flush=True)
            await asyncio.sleep(arguments.seconds)
            after, until = usages(tocsin), clock.now_ms()
            await asyncio.sleep(5)  # the last results are on their way
            figures = await books(database_url_of(tocsin), since, until)
        report(arguments, before, after, figures)


def report(
    arguments: argparse.Namespace, before: dict[str, Usage], after: dict[str, Usage], figures: dict[str, Any]
) -> None:
    checks = figures["due"]
    kind = "TLS" if arguments.tls else "plain"
    print(f"\n{arguments.monitors} monitors, every {arguments.interval} s, {kind}, {arguments.seconds} s")
    for name, value in figures.items():
        print(f"  {name:<16}{value:>10}")
    print(f"  {'process':<16}{'ms/check':>10}{'PSS MiB':>10}")
    totals = {"tocsin": Usage(0, 0), "servers": Usage(0, 0)}
    for name, used in after.items():
        spent = used.cpu_ms - before[name].cpu_ms
        print(f"  {name:<16}{spent / checks:>10.3f}{used.pss_mib:>10.1f}")
        group = "servers" if name in SERVERS else "tocsin"
        totals[group] = Usage(totals[group].cpu_ms + spent, totals[group].pss_mib + used.pss_mib)
    for name, used in totals.items():
        print(f"  {name + ' together':<16}{used.cpu_ms / checks:>10.3f}{used.pss_mib:>10.1f}")


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--monitors", type=int, default=1000)
    parser.add_argument("--interval", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    return parser.parse_args(words)


if __name__ == "__main__":
    asyncio.run(run(parse(sys.argv[1:])))
