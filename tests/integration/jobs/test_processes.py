"""A job in worker processes, sent by a real scheduler: killed, frozen and stopped in the middle, it counts on."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import text

from shared.contracts.names import SCHEDULES_BUCKET
from shared.db.session import Database
from shared.domain.slots import latest_slot_ms
from shared.jobs.schedule import cadence_of, schedule_of_job
from shared.jobs.silence import SilenceMonitor
from shared.messaging.connect import connect
from shared.messaging.declarations import bucket_subject
from shared.messaging.streams import ensure_streams
from shared.testing.nats import NatsServer
from shared.testing.postgres import PostgresServer
from shared.testing.tocsin import eventually
from tests.conftest import TEMPLATE
from tests.integration.jobs.conftest import clock, new_runner, state
from tests.integration.jobs.job_worker import steps

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

EVERY, SILENCE_AFTER = 2, 6


class Desk:
    """Two workers with the job ``steps``, a scheduler that sends it, and what they wrote."""

    def __init__(self, folder: Path, database: Database, database_url: str, nats: NatsServer) -> None:
        self._folder, self.database, self._database_url, self._nats = folder, database, database_url, nats
        self.workers: list[Process] = []
        self._others: list[Process] = []
        self._numbers = itertools.count(1)
        self._logs: dict[int, Path] = {}

    async def send_the_job_to_schedulers(self) -> None:
        connection = await connect([self._nats.url], name="tests", buffer_writes=False)
        await ensure_streams(connection.js)
        await new_runner(self.database, connection).register([steps])
        job = await state(self.database, "steps")
        subject = bucket_subject(SCHEDULES_BUCKET, str(job.schedule_id))
        await connection.js.publish(subject, msgspec.json.encode(schedule_of_job(job)))
        await connection.close()

    async def complete(self) -> None:
        """Start what is missing of two workers."""
        self.workers = [worker for worker in self.workers if worker.returncode is None]
        await asyncio.gather(*(self.start_worker() for _ in range(2 - len(self.workers))))

    async def start_worker(self) -> Process:
        log = self._folder / f"worker-{next(self._numbers)}.log"
        words = ("tests.integration.jobs.job_worker", self._database_url, self._nats.url)
        worker = await self._spawn(log, words, {})
        self.workers.append(worker)
        self._logs[worker.pid] = log
        await eventually("the worker listens", lambda: _says(log, "listening"), within=60)
        return worker

    async def start_scheduler(self) -> None:
        settings = {"TOCSIN_NATS_URL": self._nats.url, "TOCSIN_METRICS_PORT": "0",
                    "TOCSIN_READY_FILE": str(self._folder / "ready")}  # fmt: skip
        log = self._folder / "scheduler.log"
        self._others.append(await self._spawn(log, ("monitoring_scheduler.main",), settings))

    async def _spawn(self, log: Path, words: tuple[str, ...], settings: dict[str, str]) -> Process:
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", *words, stdin=DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **settings},
            )  # fmt: skip

    def log(self, worker: Process) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._logs[worker.pid].read_text().splitlines()]

    async def written(self, topic: str) -> list[tuple[str, int]]:
        """Keys and the processes that wrote them, in order."""
        query = text("SELECT key, payload->>'pid' FROM outbox WHERE topic = :topic ORDER BY id")
        async with self.database.system() as session:
            return [(row[0], int(row[1])) for row in await session.execute(query, {"topic": topic})]

    async def steps(self) -> int:
        """How many steps are committed, after proving that each was once and none was left out."""
        places = [int(key) for key, _ in await self.written("step")]
        assert places == list(range(1, len(places) + 1))
        return len(places)

    async def runner_in_the_middle(self) -> Process:
        """The worker that runs the job, when it has committed a step of this run and has more than one to do."""
        runs, steps = len(await self.written("run")), await self.steps()

        async def has_done_one_step() -> int | None:
            nonlocal runs, steps
            begun, done = await self.written("run"), await self.steps()
            if len(begun) == runs + 1 and done == steps + 1:
                return begun[-1][1]
            if done > steps + 1:  # seen too late: the next run will do
                runs, steps = len(begun), done
            return None

        pid = await eventually("a run is in the middle", has_done_one_step, every=0.01)
        return next(worker for worker in self.workers if worker.pid == pid)

    async def goes_on(self) -> None:
        """Wait for another step."""
        done, began = await self.steps(), clock.monotonic()

        async def more() -> bool:
            return await self.steps() > done

        await eventually("the job goes on", more)
        print(f"it goes on after {clock.monotonic() - began:.1f} s")

    async def end(self) -> None:
        for process in (*self.workers, *self._others):
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()


async def _says(log: Path, word: str) -> bool:
    return word in log.read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """One for all tests of this module: three processes take a while to start."""
    folder = tmp_path_factory.mktemp("jobs")
    name = f"test_{uuid4().hex}"
    owner = await asyncpg.connect(postgres.superuser_url.replace(f"/{TEMPLATE}?", "/postgres?"))
    await owner.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER tocsin")
    url = postgres.url.replace(f"/{TEMPLATE}?", f"/{name}?")
    async with NatsServer(folder / "nats") as nats, Database(url, application_name="tests") as database:
        made = Desk(folder, database, url, nats)
        try:
            await made.send_the_job_to_schedulers()
            await asyncio.gather(made.complete(), made.start_scheduler())
            yield made
        finally:
            await made.end()
    await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await owner.close()


@pytest_asyncio.fixture(loop_scope="module")
async def desk(running: Desk) -> Desk:
    """With two workers, whatever the test before did to them."""
    await running.complete()
    return running


async def test_each_slot_runs_once_and_counts_on(desk: Desk) -> None:
    async def four_runs() -> bool:
        return len(await desk.written("run")) >= 4

    await eventually("four runs", four_runs)
    cadence = cadence_of(await state(desk.database, "steps"))
    moments = [int(key) for key, _ in await desk.written("run")]
    slots = [latest_slot_ms(cadence, moment) or 0 for moment in moments]
    gaps = [after - before for before, after in itertools.pairwise(slots)]
    assert gaps[1:] == [EVERY * 1000] * (len(moments) - 2), moments
    assert await desk.steps() >= 9


async def test_a_run_that_is_killed_goes_on_elsewhere_from_its_last_checkpoint(desk: Desk) -> None:
    failures = (await state(desk.database, "steps")).failures
    victim = await desk.runner_in_the_middle()
    victim.kill()
    await victim.wait()
    await desk.goes_on()
    assert (await state(desk.database, "steps")).failures == failures + 1


async def test_a_run_that_was_frozen_past_its_lock_commits_nothing_when_it_wakes(desk: Desk) -> None:
    victim = await desk.runner_in_the_middle()
    victim.send_signal(signal.SIGSTOP)
    # Its open requests swallow slots, each for as long as it takes until that is offered again.
    await desk.goes_on()
    victim.send_signal(signal.SIGCONT)

    async def noticed() -> bool:
        return any(entry["event"] == "job failed" and entry["status"] == "lost" for entry in desk.log(victim))

    await eventually("the run notices that it was overtaken", noticed)
    await desk.goes_on()
    assert (await state(desk.database, "steps")).last_status in {"running", "succeeded"}


async def test_a_worker_that_stops_finishes_its_run(desk: Desk) -> None:
    failures = (await state(desk.database, "steps")).failures
    victim = await desk.runner_in_the_middle()
    victim.terminate()
    assert await asyncio.wait_for(victim.wait(), 30) == 0
    assert (await state(desk.database, "steps")).failures == failures
    await desk.goes_on()


async def test_silence_is_seen_from_another_process_and_ends_by_itself(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.jobs.silence.LOOK_SECONDS", 0.5)
    monitor = SilenceMonitor(desk.database, clock)
    watching = asyncio.create_task(monitor.run())

    async def succeeded() -> bool:
        return (await state(desk.database, "steps")).last_success_at is not None

    async def begun() -> bool:
        return "steps" in monitor.silent

    async def ended() -> bool:
        return "steps" not in monitor.silent

    await eventually("it succeeds", succeeded)
    for worker in desk.workers:
        worker.kill()
        await worker.wait()
    began = clock.monotonic()
    await eventually("silence is seen", begun, within=SILENCE_AFTER + 60)
    print(f"silence seen after {clock.monotonic() - began:.1f} s of {SILENCE_AFTER:g} s")
    await desk.complete()
    await eventually("silence is over", ended)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
