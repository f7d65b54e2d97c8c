"""Workers are killed at random while they run tasks: nothing is lost, every dead letter is there once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.domain.clock import SystemClock
from shared.messaging.connect import connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams, ensure_task_consumer
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import EVERYTHING
from shared.tasks.queue import TaskQueue
from shared.testing.nats import NatsServer
from tests.integration.tasks import work
from tests.integration.tasks.crew import Crew
from tests.integration.tasks.work import Order

ATTEMPTS = work.QUICK.attempts
clock = SystemClock()


@dataclass(frozen=True)
class Place:
    """A queue, its workers, and what they could not do."""

    queue: TaskQueue
    crew: Crew
    desk: DeadLetterDesk


@pytest.fixture
async def place(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Place]:
    connection = await connect([nats.url], name="chaos", buffer_writes=True)
    await ensure_streams(connection.js)
    await ensure_task_consumer(connection.js)
    async with Publisher(connection) as publisher, Crew(nats.url, connection, tmp_path) as crew:
        yield Place(TaskQueue(publisher, clock), crew, DeadLetterDesk(connection, publisher))
    await connection.close()


@pytest.mark.whole
async def test_retries_come_at_their_time_where_nothing_else_runs(place: Place) -> None:
    """Beside other tests a machine may be late; there is only tested that no attempt comes early."""
    place.crew.start()
    await place.queue.send(work.stubborn, Order(), task_id="s")
    await place.crew.until("the first run", lambda: bool(place.crew.runs("s")))
    await place.crew.done()
    moments = [moment for _, moment in place.crew.runs("s")]
    assert [moment - moments[0] for moment in moments] == pytest.approx([0, 1, 3, 7], abs=0.3)


@pytest.mark.parametrize(
    ("kills", "number", "workers"),
    [
        pytest.param(15, 200, 2, id="quick"),
        pytest.param(500, 2_000, 4, id="whole", marks=[pytest.mark.whole, pytest.mark.timeout(900)]),
    ],
)
async def test_random_kills_lose_no_task_and_double_no_dead_letter(
    place: Place, kills: int, number: int, workers: int, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose, crew = random.Random(seed), place.crew
    # Of three tasks, one succeeds at its second attempt and one never does.
    failures = {f"t{index}": (0, 1, ATTEMPTS)[index % 3] for index in range(number)}
    began = clock.monotonic()
    crew.start(workers, concurrency=4)
    sending = asyncio.create_task(_send(place.queue, failures, choose))
    for _ in range(kills):
        await asyncio.sleep(choose.uniform(0.05, 0.25))
        choose.choice(crew.workers).kill()
    await sending
    await crew.done(within=600)
    took = clock.monotonic() - began
    letters = await place.desk.page(EVERYTHING, limit=10_000)
    runs = len(crew.diary.lines("run"))
    done = {line[0] for line in crew.diary.lines("done")}
    doomed = {task_id for task_id, times in failures.items() if times >= ATTEMPTS}
    found = Counter(str(letter.task_id) for letter in letters)
    assert done == failures.keys() - doomed, "every other task succeeded"
    assert found == Counter(doomed), "each of the others is a dead letter, once"
    assert {letter.error.kind for letter in letters} == {"connection_error"}
    assert {len(letter.attempts) for letter in letters} == {ATTEMPTS}
    needed = sum(min(times + 1, ATTEMPTS) for times in failures.values())
    record_property(
        "figure",
        f"{kills} kills of task workers over {number} tasks in {took:.0f} s: 0 lost, {len(letters)} dead letters, "
        f"each once with {ATTEMPTS} attempts; {runs} runs for {needed} attempts",
    )


async def _send(queue: TaskQueue, failures: dict[str, int], choose: random.Random) -> None:
    for task_id, times in failures.items():
        await queue.send(work.flaky, Order(times, seconds=choose.uniform(0, 0.2)), task_id=task_id)
