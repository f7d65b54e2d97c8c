"""A process stops on a signal with exit code 0, and ends loudly when a part of it is lost."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

# Each is a whole program: what is tested is the process, not a function of it.
PRELUDE = """
import asyncio
from contextlib import AsyncExitStack
from shared.messaging.errors import ConsumerLostError
from shared.process import Life, run_main, run_process

async def for_ever():
    print("working", flush=True)
    await asyncio.Event().wait()

async def process(part):
    life = Life()
    life.listen_to_signals()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(life.end)
        life.start("steady", for_ever())
        life.start("part", part())
        await life.wait()
        print("finishing", flush=True)
"""
RETURNS = "async def part(): await asyncio.sleep(0.05)\nrun_process(lambda: process(part))"
RAISES = "async def part(): raise ConsumerLostError('nothing could be pulled')\nrun_process(lambda: process(part))"
GROUPED = """
async def part():
    raise BaseExceptionGroup('wrapped', [ConsumerLostError('nothing could be pulled')])
run_process(lambda: process(part))"""
LEADERLESS = """
from nats.js.errors import ServiceUnavailableError
async def part(): raise ServiceUnavailableError(code=503, description='JetStream system temporarily unavailable')
run_process(lambda: process(part))"""
FAULTY = "async def part(): return 1 / 0\nrun_process(lambda: process(part))"
HEALTHY = "run_process(lambda: process(for_ever))"
STUBBORN = """
async def part():
    swallowed = 0
    while swallowed < 3:
        try:
            await for_ever()
        except asyncio.CancelledError:
            swallowed += 1
run_process(lambda: process(part))"""
STARTING = """
async def start():
    life = Life()
    life.listen_to_signals()
    await for_ever()
run_process(start)"""
MISCONFIGURED = """
from shared.settings import CommonSettings, load
import os
os.environ["TOCSIN_NATS_URL"] = "http://wrong"
run_main(lambda: load(CommonSettings))"""


async def start(program: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", PRELUDE + program, stdout=pipe, stderr=pipe)


async def finished(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    return process.returncode, (output + errors).decode()


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        (RETURNS, 1, "part ended, though it should run for ever"),
        (RAISES, 1, "nothing could be pulled"),
        (GROUPED, 1, "nothing could be pulled"),
        (LEADERLESS, 1, "temporarily unavailable"),
        (FAULTY, 1, "ZeroDivisionError"),
        (MISCONFIGURED, 2, "TOCSIN_NATS_URL"),
    ],
)
async def test_a_lost_part_ends_the_process_with_its_reason(program: str, code: int, words: str) -> None:
    ended, output = await finished(await start(program))
    assert (ended, words in output) == (code, True), output
    assert ("fault of its own" in output) is (program == FAULTY)
    assert "was never retrieved" not in output
    assert "was destroyed" not in output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [HEALTHY, STUBBORN, STARTING])
async def test_a_signal_ends_it_in_order(how: signal.Signals, program: str) -> None:
    process = await start(program)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"working\n"
    process.send_signal(how)
    ended, output = await finished(process)
    assert ended == 0, output
    assert program == STARTING or "finishing" in output
    assert "was destroyed" not in output
