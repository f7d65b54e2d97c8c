"""The desk and the listener over a real stream: listing, replay, purge, and who hears of a letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from nats.js.api import StreamInfo
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.contracts.names import DEAD_LETTERS_STREAM, RESULTS_STREAM, TASKS_STREAM, task_subject
from shared.domain.clock import SystemClock
from shared.messaging.connect import NatsConnection
from shared.messaging.publisher import Publisher
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.declaration import TaskContext, TaskSet
from shared.tasks.errors import ArgumentTooLargeError, LetterNotFoundError, ReplayRefusedError
from shared.tasks.letter_box import LetterBox
from shared.tasks.letters import EVERYTHING, DeadLetter, View
from shared.tasks.listener import DeadLetterListener
from shared.tasks.queue import ARGUMENT_LIMIT, TaskQueue
from shared.tasks.worker import TaskWorker
from shared.testing.tocsin import eventually

clock = SystemClock()
ALICE, BOB = UUID(int=1 << 100), UUID(int=2 << 100)


class Note(msgspec.Struct):
    text: str


class World:
    """What decides whether the task fails."""

    def __init__(self) -> None:
        self.is_broken = True
        self.written: list[str] = []


tasks: TaskSet[World] = TaskSet()


@tasks.declare("write", argument=Note, timeout=5, idempotent=True)
async def write(note: Note, context: TaskContext[World]) -> None:
    if context.resources.is_broken:
        raise ValueError(f"{note.text} cannot be written")
    context.resources.written.append(note.text)


@asynccontextmanager
async def working(connection: NatsConnection, publisher: Publisher, world: World) -> AsyncIterator[None]:
    worker, stopping = TaskWorker(connection, publisher, clock), asyncio.Event()
    worker.add(tasks, world)
    listening = asyncio.create_task(worker.listen(stopping))
    yield
    stopping.set()
    await listening
    await worker.close()


@pytest.fixture
async def world(connection: NatsConnection, publisher: Publisher) -> AsyncIterator[World]:
    """A worker that fails until told otherwise."""
    world = World()
    async with working(connection, publisher, world):
        yield world


async def info(connection: NatsConnection, stream: str) -> StreamInfo:
    return await connection.js.stream_info(stream)


async def fail(queue: TaskQueue, desk: DeadLetterDesk, *names: str, owner: UUID | None = None) -> list[DeadLetter]:
    """One letter for each name, oldest first."""
    for name in names:
        before = sum((await desk.count()).values())
        await queue.send(write, Note(name), task_id=name, organisation_id=owner)

        async def more(before: int = before) -> bool:
            return sum((await desk.count()).values()) > before

        await eventually(f"the letter of {name}", more)
    return [letter for letter in reversed(await desk.page(EVERYTHING, limit=1000)) if letter.task_id in names]


async def test_letters_are_listed_newest_first_in_pages_and_each_sees_their_own(
    queue: TaskQueue, desk: DeadLetterDesk, world: World
) -> None:
    await fail(queue, desk, "a1", "a2", owner=ALICE)
    await fail(queue, desk, "b1", owner=BOB)
    await fail(queue, desk, "p1", "p2")

    async def names(view: View, **filters: object) -> list[str | None]:
        return [letter.task_id for letter in await desk.page(view, **filters)]  # type: ignore[arg-type]  # as given

    assert await names(EVERYTHING) == ["p2", "p1", "b1", "a2", "a1"]
    assert await names(View((ALICE,))) == ["a2", "a1"]
    assert await names(View((BOB, None))) == ["p2", "p1", "b1"]
    assert await names(EVERYTHING, task="nothing") == []
    first = await desk.page(EVERYTHING, limit=2)
    assert await names(EVERYTHING, before=first[-1].id, limit=2) == ["b1", "a2"]
    assert (await desk.show(View((BOB, None)), first[0].id)).task_id == "p2"
    for owner in (ALICE, BOB):
        with pytest.raises(LetterNotFoundError):
            await desk.show(View((owner,)), first[0].id)


async def test_a_replayed_letter_is_gone_and_the_work_is_done_once(
    queue: TaskQueue, desk: DeadLetterDesk, world: World
) -> None:
    (letter,) = await fail(queue, desk, "n", owner=ALICE)
    world.is_broken = False
    await desk.replay(View((ALICE,)), letter.id)
    await eventually("it is written", lambda: _true(world.written == ["n"]))
    with pytest.raises(LetterNotFoundError):
        await desk.replay(View((ALICE,)), letter.id)
    assert world.written == ["n"]


async def test_a_replay_that_was_interrupted_and_is_done_again_sends_once(
    queue: TaskQueue, desk: DeadLetterDesk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (letter,) = await fail(queue, desk, "n")
    world.is_broken = False

    async def die(_: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as interrupted:
        interrupted.setattr(desk, "_remove", die)
        with pytest.raises(ConnectionResetError):
            await desk.replay(EVERYTHING, letter.id)
    await eventually("it is written", lambda: _true(world.written == ["n"]))
    await desk.replay(EVERYTHING, letter.id)
    assert await desk.page(EVERYTHING) == []
    assert world.written == ["n"]


async def test_what_fails_again_is_back_in_the_same_place_with_the_new_failure(
    queue: TaskQueue, desk: DeadLetterDesk, world: World
) -> None:
    (letter,) = await fail(queue, desk, "poison")
    for _ in range(3):
        await desk.replay(EVERYTHING, letter.id)
        earlier = letter

        async def failed_again(earlier: DeadLetter = earlier) -> DeadLetter | None:
            found = await desk.page(EVERYTHING)
            return next((one for one in found if one.failed_at > earlier.failed_at), None)

        letter = await eventually("it has failed again", failed_again)
        assert (letter.id, letter.task_id, len(letter.attempts)) == (earlier.id, "poison", 1)
    assert len(await desk.page(EVERYTHING)) == 1


async def test_a_letter_written_twice_is_there_once(
    queue: TaskQueue, desk: DeadLetterDesk, connection: NatsConnection, publisher: Publisher
) -> None:
    await queue.send(write, Note("x"), task_id="x")
    subscription = await connection.js.pull_subscribe_bind("tasks", TASKS_STREAM)
    (message,) = await subscription.fetch(1)
    box = LetterBox(publisher)
    for _ in range(3):
        await box.put_message(message, "unknown_task", "nobody knows it")
    await subscription.unsubscribe()
    (letter,) = await desk.page(EVERYTHING)
    assert (letter.task, letter.task_id, msgspec.json.decode(letter.arguments)) == ("write", "x", {"text": "x"})


async def test_what_is_no_task_is_kept_as_bytes_and_can_be_sent_again(
    desk: DeadLetterDesk, world: World, connection: NatsConnection, publisher: Publisher
) -> None:
    await publisher.send(task_subject(ALICE, "write"), b"\xffno task")

    async def kept() -> DeadLetter | None:
        return next(iter(await desk.page(View((ALICE,)))), None)

    letter = await eventually("the letter", kept)
    assert (letter.task, letter.error.kind, letter.form) == ("unreadable", "undecodable", "base64")
    await desk.replay(EVERYTHING, letter.id)

    async def back() -> bool:
        return (await info(connection, DEAD_LETTERS_STREAM)).state.last_seq >= 2

    await eventually("it is back", back)
    assert [one.id for one in await desk.page(EVERYTHING)] == [letter.id]


async def test_a_replay_that_the_queue_refuses_leaves_the_letter(
    desk: DeadLetterDesk, connection: NatsConnection, publisher: Publisher
) -> None:
    await LetterBox(publisher).put_content(
        task="store_result",
        subject="results.default",
        payload=b"{}",
        identity="i",
        moment_ms=1,
        failed_ms=clock.now_ms(),
        kind="refused",
        reason="no",
    )
    await connection.js.delete_stream(RESULTS_STREAM)
    (letter,) = await desk.page(EVERYTHING)
    with pytest.raises(ReplayRefusedError, match="try again later"):
        await desk.replay(EVERYTHING, letter.id)
    assert await desk.page(EVERYTHING) == [letter]


async def test_purge_takes_those_that_failed_before_and_only_what_is_in_view(
    queue: TaskQueue, desk: DeadLetterDesk, world: World
) -> None:
    await fail(queue, desk, "old", owner=ALICE)
    await fail(queue, desk, "platforms")
    between = clock.now_ms() + 1
    await asyncio.sleep(0.005)  # the next one fails in a later millisecond
    await fail(queue, desk, "new", owner=ALICE)
    assert await desk.purge(View((ALICE,)), between) == 1
    assert [letter.task_id for letter in await desk.page(EVERYTHING)] == ["new", "platforms"]
    assert await desk.purge(EVERYTHING, clock.now_ms() + 1000) == 2
    assert await desk.purge(EVERYTHING, clock.now_ms() + 1000) == 0


@pytest.mark.usefixtures("world")
async def test_counting_lists_the_letters_only_after_a_change(
    queue: TaskQueue, desk: DeadLetterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: list[str] = []
    list_page = DeadLetterDesk._subject_page

    async def listed(self: DeadLetterDesk, pattern: str, offset: int) -> Any:
        lists.append(pattern)
        return await list_page(self, pattern, offset)

    first, _ = await fail(queue, desk, "a", "b")
    monkeypatch.setattr(DeadLetterDesk, "_subject_page", listed)
    assert await desk.count() == {"write": 2}
    lists.clear()
    assert await desk.count() == {"write": 2}
    assert lists == []
    await desk.delete(EVERYTHING, first.id)
    assert await desk.count() == {"write": 1}
    await fail(queue, desk, "c")
    assert await desk.count() == {"write": 2}
    assert lists


async def test_each_letter_is_told_to_one_listener_again_after_a_failure_and_counted(
    queue: TaskQueue,
    desk: DeadLetterDesk,
    world: World,
    connection: NatsConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.tasks.listener.TOLD_AGAIN_SECONDS", 0.05)
    told: list[str] = []

    async def tell(letter: DeadLetter) -> None:
        told.append(str(letter.task_id))
        if told.count("a") == 1 and letter.task_id == "a":
            raise ConnectionError("the alarm is away")

    listeners = [DeadLetterListener(connection, desk, on_letter=tell) for _ in range(2)]
    with capture_logs() as logs:
        running = [asyncio.create_task(listener.run()) for listener in listeners]
        await fail(queue, desk, "a", "b", owner=ALICE)
        await eventually("both are told, one of them twice", lambda: _true(sorted(told) == ["a", "a", "b"]))
    alarms = [line for line in logs if line["event"] == "work failed for good and waits among the dead letters"]
    assert {(line["log_level"], line["task"], line["organisation"]) for line in alarms} == {
        ("error", "write", str(ALICE))
    }
    await listeners[0].count()
    assert REGISTRY.get_sample_value("tocsin_dead_letters", {"task": "write"}) == 2
    await desk.purge(EVERYTHING, clock.now_ms() + 1000)
    await listeners[0].count()
    assert REGISTRY.get_sample_value("tocsin_dead_letters", {"task": "write"}) == 0
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_an_argument_that_fits_into_no_letter_is_refused_when_it_is_sent(queue: TaskQueue) -> None:
    with pytest.raises(ArgumentTooLargeError):
        await queue.send(write, Note("x" * ARGUMENT_LIMIT), task_id="big")
    for task_id in ("", "a.b", "a b", "*", "ä", "x" * 129):
        with pytest.raises(ValueError, match="use 1 to 128"):
            await queue.send(write, Note("x"), task_id=task_id)


async def test_metrics_tell_work_from_retries(queue: TaskQueue, desk: DeadLetterDesk, world: World) -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, {"task": "write", **labels}) or 0.0

    failures, attempts = value("tocsin_task_failures_total"), value("tocsin_task_duration_seconds_count")
    await fail(queue, desk, str(uuid4()))
    world.is_broken = False
    await queue.send(write, Note("good"), task_id="good")
    await eventually("it is written", lambda: _true(world.written == ["good"]))
    assert value("tocsin_task_failures_total") - failures == 1
    assert value("tocsin_task_duration_seconds_count") - attempts == 2
    assert value("tocsin_task_seconds_total", spent_on="work") > 0


async def _true(condition: bool) -> bool:
    return condition
