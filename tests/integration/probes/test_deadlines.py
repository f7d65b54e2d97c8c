"""The timeout is one wall-clock deadline, whatever drips; retries, and faults of our own."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time

import pytest
from structlog.testing import capture_logs

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck
from shared.domain.result import ResultStatus
from shared.http.guard import AddressPolicy
from shared.http.resolver import Family
from tests.integration.probes.conftest import AT_ONCE, HERE, check, check_tls
from tests.integration.probes.targets import Handler, Names, answer, closed_port, serve

TIMEOUT = 1.0


def drip(at_once: bytes, then: bytes) -> Handler:
    async def reply(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(at_once)
        for byte in then:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.1)

    return reply


@pytest.mark.parametrize(
    ("handler", "phase"),
    [
        (drip(b"", answer("200 OK", b"x" * 200)), "while receiving"),
        (drip(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n", b"x" * 200), "while receiving"),
        (drip(b"HTTP/1.1 200 OK\r\n", b"X: y" * 50), "while receiving"),
    ],
    ids=["header", "body", "endless header"],
)
async def test_http_03_a_slow_drip_does_not_stretch_the_deadline(
    runner: CheckRunner, handler: Handler, phase: str
) -> None:
    async with serve(handler) as target:
        started = time.monotonic()
        verdict = await check(runner, target.url(), timeout=TIMEOUT)
        took = time.monotonic() - started
        assert verdict.error
        assert verdict.error.kind == "timeout"
        assert phase in verdict.error.message
        assert TIMEOUT * 0.9 <= took < AT_ONCE, "the whole of it takes twenty seconds"


async def test_http_03_a_tls_hello_that_is_never_answered_times_out(runner: CheckRunner) -> None:
    async with serve(answer()) as target:  # it waits for a blank line
        for verdict in (
            await check(runner, target.url(scheme="https"), timeout=TIMEOUT),
            await check_tls(runner, target.port, timeout=TIMEOUT),
        ):
            assert verdict.error
            assert verdict.error.kind == "timeout"
            assert "TLS handshake" in verdict.error.message


class SlowNames(Names):
    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        await asyncio.sleep(60)
        return await super().resolve(host, family)


async def test_a_name_service_that_dawdles_is_a_dns_timeout() -> None:
    verdict = await check(CheckRunner(HERE, resolver=SlowNames({})), "http://slow.example.test/", timeout=0.2)
    assert verdict.error
    assert verdict.error.kind == "dns_timeout"


async def test_a_retry_that_succeeds_is_up_and_counted(runner: CheckRunner) -> None:
    async def second_time_lucky(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("503 Busy") if len(target.requests) == 1 else answer())

    async with serve(second_time_lucky) as target:
        verdict = await runner.run(
            HttpCheck(url=target.url()), timeout_seconds=30, retries=3, retry_delay_seconds=3
        )
        assert verdict.status is ResultStatus.UP, verdict.error
        assert verdict.attempts == 2
        assert verdict.timings_ms.total < 2500, "the deciding attempt alone"
        assert len(target.requests) == 2


async def test_the_last_attempt_decides(runner: CheckRunner) -> None:
    spec = HttpCheck(url=f"http://127.0.0.1:{closed_port()}/")
    verdict = await runner.run(spec, timeout_seconds=30, retries=2, retry_delay_seconds=0)
    assert verdict.status is ResultStatus.DOWN
    assert verdict.attempts == 3


async def test_a_retry_that_might_outlast_the_budget_is_not_begun() -> None:
    runner = CheckRunner(HERE, jitter=lambda: 1.0)  # every delay is the longest there can be: 1.1 s
    spec = HttpCheck(url=f"http://127.0.0.1:{closed_port()}/")
    budget = 20 + 1.1 + 1.0  # room for one retry, even if the first attempt is slow to be refused
    verdict = await runner.run(spec, timeout_seconds=20, retries=5, retry_delay_seconds=1, budget_seconds=budget)
    assert verdict.attempts == 2


async def test_a_blocked_target_is_not_tried_again() -> None:
    spec = HttpCheck(url="http://127.0.0.1/")
    verdict = await CheckRunner(AddressPolicy()).run(spec, timeout_seconds=2, retries=5, retry_delay_seconds=5)
    assert verdict.attempts == 1


class BrokenNames(Names):
    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        raise RuntimeError(f"a fault of ours with {host} {family}")


async def test_our_own_fault_is_never_held_against_the_target() -> None:
    with capture_logs() as logs:
        verdict = await check(CheckRunner(HERE, resolver=BrokenNames({})), "http://any.example.test/")
    assert verdict.status is ResultStatus.MISSED
    assert verdict.error
    assert verdict.error.kind == "internal_error"
    assert logs[0]["log_level"] == "error"
    assert "a fault of ours" in logs[0]["trace"]


async def test_a_cancelled_check_hangs_up(runner: CheckRunner) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait_for_the_end(_: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        with contextlib.suppress(ConnectionError):
            while not writer.transport.is_closing():
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
        gone.set()

    async with serve(wait_for_the_end) as target, asyncio.timeout(AT_ONCE):
        task = asyncio.create_task(check(runner, target.url(), timeout=30))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone.wait()


async def test_a_thousand_hanging_targets_do_not_delay_a_healthy_one(runner: CheckRunner) -> None:
    everybody_waits = asyncio.Event()

    async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
        if len(silent.requests) == 1000:
            everybody_waits.set()
        await asyncio.sleep(60)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        async with serve(hang) as silent, serve(answer()) as healthy:
            hanging = [asyncio.create_task(check(runner, silent.url(), timeout=60)) for _ in range(1000)]
            await everybody_waits.wait()
            verdict = await check(runner, healthy.url())
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.timings_ms.total < AT_ONCE * 1000
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
