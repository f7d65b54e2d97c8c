"""CPU time of one check in the check engine, beside httpx and, where installed, blackbox_exporter in the same run.

``python -m bench.engine [checks] [rounds]``: a server in a process of its own answers 2 KiB and closes; 100 checks
are in flight on one core under uvloop. Printed are medians over the rounds, in CPU milliseconds of this process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import httpx
import trustme
import uvloop

from bench.blackbox import Blackbox, blackbox
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import ResultStatus
from shared.http.guard import AddressPolicy

IN_FLIGHT = 100
BODY = b"x" * 2043 + b"ready"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2048\r\nConnection: close\r\n\r\n" + BODY

Check = Callable[[], Awaitable[None]]


class Server(asyncio.Protocol):
    """Answers whatever comes with the same bytes."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self._transport.write(ANSWER)
            self._transport.close()


def serve(pipe: Connection, pem: str) -> None:
    """The other process: sends its two ports and serves until it is terminated."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        plain = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024)
        tls = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024, ssl=context)
        pipe.send([server.sockets[0].getsockname()[1] for server in (plain, tls)])
        await loop.create_future()

    uvloop.run(run())


async def cpu_per_check(check: Check, count: int) -> float:
    """CPU milliseconds of this process per check."""
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await check()

    started = time.process_time()
    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return (time.process_time() - started) * 1000 / count


def engine(url: str, ca_file: Path) -> Check:
    """The engine with a status and a keyword to judge."""
    runner = CheckRunner(AddressPolicy(allow_private=True), ca_file=ca_file)
    spec = HttpCheck.model_validate(
        {"url": url, "assertions": [{"source": "body", "operator": "contains", "value": "ready"}]}
    )

    async def check() -> None:
        verdict = await runner.run(spec, timeout_seconds=30)
        assert verdict.status is ResultStatus.UP, verdict.error

    return check


def peer(url: str, client: httpx.AsyncClient) -> Check:
    """One shared httpx client without keep-alive."""

    async def check() -> None:
        response = await client.get(url)
        assert b"ready" in response.content

    return check


async def blackbox_cpu_per_check(exporter: Blackbox, client: httpx.AsyncClient, url: str, count: int) -> float:
    """CPU milliseconds of the exporter's process per probe, with as many in flight."""
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await exporter.probe(client, url)

    before = exporter.cpu_ms()
    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return (exporter.cpu_ms() - before) / count


async def measure(ports: list[int], ca_file: Path, count: int, rounds: int, exporter: Blackbox | None) -> None:
    """Interleave the rounds, so that a noisy neighbour hits all alike."""
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=0)
    context = ssl.create_default_context(cafile=ca_file)
    async with (
        httpx.AsyncClient(verify=context, limits=limits, timeout=30, trust_env=False) as client,
        httpx.AsyncClient(limits=httpx.Limits(max_connections=IN_FLIGHT), timeout=60, trust_env=False) as scraper,
    ):
        for scheme, port in zip(("http", "https"), ports, strict=True):
            url = f"{scheme}://127.0.0.1:{port}/"
            ours, theirs = engine(url, ca_file), peer(url, client)
            await cpu_per_check(ours, IN_FLIGHT)
            rows: dict[str, list[float]] = {"engine": [], "httpx": [], "blackbox": []}
            for _ in range(rounds):
                rows["engine"].append(await cpu_per_check(ours, count))
                rows["httpx"].append(await cpu_per_check(theirs, count // 4))
                if exporter:
                    rows["blackbox"].append(await blackbox_cpu_per_check(exporter, scraper, url, count))
            report(scheme, {name: statistics.median(row) for name, row in rows.items() if row})


def report(scheme: str, medians: dict[str, float]) -> None:
    """One line: CPU milliseconds per check, and ours as a share of each peer's."""
    mine = medians.pop("engine")
    peers = "   ".join(f"{name} {value:.3f} ms ({mine / value:.2f} ×)" for name, value in medians.items())
    print(f"{scheme:5}  engine {mine:.3f} ms   {peers}")


def main(count: int = 2000, rounds: int = 5) -> None:
    """Start the server, measure, stop it."""
    root = trustme.CA()
    leaf = root.create_child_ca().issue_cert("127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        pem, ca_file = Path(folder) / "leaf.pem", Path(folder) / "root.pem"
        pem.write_bytes(leaf.private_key_pem.bytes() + b"".join(part.bytes() for part in leaf.cert_chain_pems))
        root.cert_pem.write_to_path(str(ca_file))
        mine, other = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(other, str(pem)))
        server.start()
        try:
            with blackbox(ca_file) as exporter:
                uvloop.run(measure(mine.recv(), ca_file, count, rounds, exporter))
        finally:
            server.terminate()
            server.join()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
