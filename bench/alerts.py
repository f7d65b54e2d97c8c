"""From the failing answer to the webhook: ``tocsin up`` under load, targets that fail in turn, a sink that times.

``python -m bench.alerts [--monitors N] [--interval S] [--rounds N]``: every two seconds three targets begin to fail
(``failure_threshold`` is 1) and are mended ten seconds later. The clock is that of the process which
answered the check and which receives the webhook.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from bench.alert_targets import OPENED, RESOLVED
from shared.testing.tocsin import Tocsin, eventually

AT_ONCE = 3
BETWEEN_SECONDS = 2.0
MENDED_AFTER = 10.0


@contextlib.contextmanager
def targets() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.alert_targets"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def create(tocsin: Tocsin, base: str, number: int, interval: int) -> None:
    gate = asyncio.Semaphore(8)

    async def one(index: int) -> None:
        async with gate:
            check = {"kind": "http", "url": f"{base}/target/{index}"}
            await tocsin.create_monitor(name=str(index), interval_seconds=interval, check=check)

    answer = await tocsin.client.post(
        "/v1/channels", json={"name": "sink", "kind": "webhook", "config": {"url": f"{base}/hook"}}
    )
    assert answer.status_code == 201, answer.text
    await asyncio.gather(*(one(index) for index in range(number)))


async def disturb(client: httpx.AsyncClient, number: int, rounds: int) -> int:
    """Let targets fail and mend them; answers how many failed."""
    chosen = random.Random(1).sample(range(number), AT_ONCE * rounds)
    mending: list[asyncio.Task[None]] = []

    async def mend(index: int) -> None:
        await asyncio.sleep(MENDED_AFTER)
        await client.post(f"/mend/{index}")

    for start in range(0, len(chosen), AT_ONCE):
        for index in chosen[start : start + AT_ONCE]:
            await client.post(f"/fail/{index}")
            mending.append(asyncio.create_task(mend(index)))
        await asyncio.sleep(BETWEEN_SECONDS)
    await asyncio.gather(*mending)
    return len(chosen)


async def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, targets() as base:
        async with (
            Tocsin(Path(folder) / "data") as tocsin,
            httpx.AsyncClient(base_url=base, trust_env=False) as client,
        ):
            await create(tocsin, base, arguments.monitors, arguments.interval)
            await asyncio.sleep(arguments.interval + 5)
            failed = await disturb(client, arguments.monitors, arguments.rounds)

            async def told() -> list[tuple[str, str, float]] | None:
                times = (await client.get("/times")).json()
                return times if len(times) == 2 * failed else None

            times = await eventually("every webhook arrives", told, within=30)
    rate = arguments.monitors / arguments.interval
    print(f"{arguments.monitors} monitors every {arguments.interval} s ({rate:.0f} checks/s), {failed} incidents")
    for kind in (OPENED, RESOLVED):
        row = sorted(milliseconds for _, what, milliseconds in times if what == kind)
        print(
            f"  {kind:<18} p50 {row[len(row) // 2]:6.0f} ms   p99 {row[int(len(row) * 0.99)]:6.0f} ms"
            f"   max {row[-1]:6.0f} ms"
        )


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.alerts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--monitors", type=int, default=1000)
    parser.add_argument("--interval", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    return parser.parse_args(words)


if __name__ == "__main__":
    asyncio.run(run(parse(sys.argv[1:])))
