"""What the check engine holds on to and how well it keeps time: memory, handshakes in flight, phase timings.

``python -m bench.limits [checks]``: the targets are processes of their own; memory is this process's resident set.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import trustme
import uvloop

from bench.engine import IN_FLIGHT, cpu_per_check, engine, serve
from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import ResultStatus
from shared.http.guard import AddressPolicy

HANDSHAKES = 1_000
ANSWER_AFTER = 0.05
TIMED_CHECKS = 400
PAGE = 4096


def resident_mib() -> float:
    """Resident set of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def serve_slowly(pipe: Connection, _: str) -> None:
    """Answers 50 ms after the request, from a thread that sleeps, and tells how long it really took."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    pipe.send(listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer_late, args=(connection,), daemon=True).start()


def answer_late(connection: socket.socket) -> None:
    with connection:
        connection.recv(65536)
        began = time.perf_counter()
        time.sleep(ANSWER_AFTER)
        took = f"{(time.perf_counter() - began) * 1000:.3f}"
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(took)}\r\n\r\n{took}".encode())


def serve_together(pipe: Connection, pem: str) -> None:
    """Lets nobody finish a handshake before all have begun theirs."""

    async def run() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        all_here = asyncio.Event()
        present = 0

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal present
            present += 1
            if present == HANDSHAKES:
                pipe.send("all here")
                all_here.set()
            await all_here.wait()
            await writer.start_tls(context)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=HANDSHAKES)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().create_future()

    asyncio.run(run())


async def memory_over(checks: int, port: int, ca_file: Path) -> None:
    """Is memory flat? Printed at a tenth and at the end."""
    check = engine(f"http://127.0.0.1:{port}/", ca_file)
    await cpu_per_check(check, checks // 10)
    early = resident_mib()
    await cpu_per_check(check, checks - checks // 10)
    late = resident_mib()
    print(
        f"memory       {early:.1f} MiB after {checks // 10:,} checks, {late:.1f} MiB after {checks:,}; "
        f"{IN_FLIGHT} in flight"
    )


async def handshakes(port: int, ca_file: Path, pipe: Connection) -> None:
    """The resident set while all handshakes are in flight."""
    runner = CheckRunner(AddressPolicy(allow_private=True), ca_file=ca_file)
    spec = HttpCheck.model_validate({"url": f"https://127.0.0.1:{port}/"})
    before = resident_mib()
    running = [asyncio.create_task(runner.run(spec, timeout_seconds=60)) for _ in range(HANDSHAKES)]
    assert await asyncio.to_thread(pipe.recv) == "all here"
    during = resident_mib()
    verdicts = await asyncio.gather(*running)
    up = sum(verdict.status is ResultStatus.UP for verdict in verdicts)
    print(
        f"handshakes   {during:.1f} MiB with {HANDSHAKES:,} in flight ({before:.1f} before), "
        f"{resident_mib():.1f} when all were answered; {up:,} up"
    )


async def clock(port: int, checks: int = TIMED_CHECKS) -> None:
    """How far the phase "first byte" is from what the target says it took; four checks at a time."""
    runner = CheckRunner(AddressPolicy(allow_private=True))
    spec = HttpCheck.model_validate(
        {
            "url": f"http://127.0.0.1:{port}/",
            "assertions": [{"source": "json", "path": "$", "operator": "gt", "value": 0}],
        }
    )
    left = iter(range(checks))
    errors: list[float] = []

    async def lane() -> None:
        for _ in left:
            verdict = await runner.run(spec, timeout_seconds=10)
            took = float(verdict.assertions[-1].actual)
            errors.append(abs(verdict.timings_ms.first_byte - took))

    await asyncio.gather(*(lane() for _ in range(4)))
    p50, p95 = statistics.median(errors), sorted(errors)[int(len(errors) * 0.95)]
    print(
        f"phase clock  first byte is off by {p50:.2f} ms p50, {p95:.2f} ms p95 of {len(errors)} answers after 50 ms"
    )


def main(checks: int = 100_000) -> None:
    """Start the targets, measure, stop them."""
    root = trustme.CA()
    leaf = root.issue_cert("127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        pem, ca_file = Path(folder) / "leaf.pem", Path(folder) / "root.pem"
        pem.write_bytes(leaf.private_key_pem.bytes() + b"".join(part.bytes() for part in leaf.cert_chain_pems))
        root.cert_pem.write_to_path(str(ca_file))
        spawn = multiprocessing.get_context("spawn")
        pipes = [multiprocessing.Pipe() for _ in range(3)]
        servers = [
            spawn.Process(target=target, args=(pipe[1], str(pem)))
            for target, pipe in zip((serve, serve_slowly, serve_together), pipes, strict=True)
        ]
        for server in servers:
            server.start()
        try:
            (plain, _), slow, together = (pipe[0].recv() for pipe in pipes)
            uvloop.run(clock(slow))
            uvloop.run(handshakes(together, ca_file, pipes[2][0]))
            uvloop.run(memory_over(checks, plain, ca_file))
        finally:
            for server in servers:
                server.terminate()
                server.join()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
