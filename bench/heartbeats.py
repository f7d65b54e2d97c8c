"""Pings over HTTP: how many a second one API process answers, beside a route of the same process that does nothing.

``python -m bench.heartbeats [pings] [connections]`` starts ``tocsin up`` on a fresh data directory, creates 500
heartbeats over REST and sends pings of all of them over connections that are kept open, one request after the other
on each. An answer counts when it is "200 OK": the ping is then committed in PostgreSQL. The client shares the
machine with everything it measures, the worker that judges the pings meanwhile included.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import uvloop

from bench.load import database_url_of, usage_of
from shared.testing.tocsin import Tocsin, eventually

MONITORS = 500
ROUNDS = 3


async def measure(pings: int, connections: int) -> None:
    """Print the rates of some rounds of both routes, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        async with Tocsin(Path(folder) / "data", "--schedulers", "1", "--workers", "1") as tocsin:
            paths = [await add_heartbeat(tocsin, number) for number in range(MONITORS)]
            url = str(tocsin.client.base_url)
            await load(url, paths, 1000, connections)
            print(f"{pings} pings of {MONITORS} heartbeats, {connections} connections")
            for _ in range(ROUNDS):
                for route, targets in (("GET /livez", ["/livez"]), ("GET /ping/{token}", paths)):
                    before = cpu_ms(tocsin)
                    seconds, taken = await load(url, targets, pings, connections)
                    report(route, seconds, taken, cpu_ms(tocsin) - before)
            await report_judging(tocsin)


def cpu_ms(tocsin: Tocsin) -> float:
    """What the API process has used so far: on shared cores this says more than the clock on the wall."""
    return usage_of([tocsin.processes()["api"]["pid"]]).cpu_ms


async def add_heartbeat(tocsin: Tocsin, number: int) -> str:
    check = {"kind": "heartbeat", "period_seconds": 3600}
    monitor = await tocsin.create_monitor(name=f"Job {number}", check=check)
    path: str = monitor["heartbeat"]["ping_path"]
    return path


async def load(url: str, paths: list[str], count: int, connections: int) -> tuple[float, list[float]]:
    """Send so many requests; answers the seconds that all took, and those of each."""
    requests = islice(cycle(paths), count)
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 80
    began = time.perf_counter()
    taken = await asyncio.gather(*(_one_by_one(host, port, requests) for _ in range(connections)))
    return time.perf_counter() - began, [seconds for each in taken for seconds in each]


async def _one_by_one(host: str, port: int, requests: Iterator[str]) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    taken = []
    for path in requests:
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"not answered with 200: {head[:200]!r}")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        taken.append(time.perf_counter() - began)
    writer.close()
    return taken


def report(route: str, seconds: float, taken: list[float], cpu: float) -> None:
    cuts = statistics.quantiles(taken, n=100)
    times = f"p50 {cuts[49] * 1000:6.1f} ms   p99 {cuts[98] * 1000:6.1f} ms"
    per_request = f"{cpu / len(taken):.3f} ms of CPU each ({len(taken) / cpu * 1000:.0f} in a second of CPU)"
    print(f"{route:20} {len(taken) / seconds:7.0f}/s   {times}   {per_request}", flush=True)


async def report_judging(tocsin: Tocsin) -> None:
    """Wait until every ping has been judged, and say how long that took after the last answer."""
    connection = await asyncpg.connect(database_url_of(tocsin), server_settings={"role": "tocsin_system"})
    began = time.perf_counter()

    async def is_empty() -> bool:
        return not await connection.fetchval("SELECT count(*) FROM heartbeat_pings")

    await eventually("all pings are judged", is_empty, within=300)
    print(f"the last ping was judged {time.perf_counter() - began:.1f} s after its answer")
    await connection.close()


def main(pings: int = 20_000, connections: int = 64) -> None:
    """Measure, and print."""
    uvloop.run(measure(pings, connections))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
