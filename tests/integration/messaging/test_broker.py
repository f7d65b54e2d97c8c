"""taskiq over the pull loop: tasks run, nothing is eaten, and the end is clean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from structlog.testing import capture_logs
from taskiq import AcknowledgeType, AsyncTaskiqDecoratedTask
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from shared.contracts.names import CHECKS_STREAM
from shared.messaging import broker as broker_module
from shared.messaging.broker import ResilientPullBroker
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.errors import ConsumerLostError, PublishUnknownError
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_consumer, ensure_streams
from shared.messaging.task_format import encode_task
from shared.testing.nats import NatsServer
from tests.dice import new_dice
from tests.integration.messaging.conftest import until
from tests.integration.messaging.reading import CONSUMER, send_until_stored

Body = Callable[[dict[str, Any]], Awaitable[None]]


class Worker:
    """A broker with one task, ``run_check``, and taskiq's receiver over it."""

    def __init__(self, connection: NatsConnection, publisher: Publisher, name: str, body: Body | None) -> None:
        async def ensure() -> None:
            await ensure_streams(connection.js)
            await ensure_consumer(connection.js, "eu")

        async def run(check: dict[str, Any]) -> None:
            self.seen.append(check["name"])
            if body is not None:
                await body(check)

        self.seen: list[str] = []

        async def keep(message: Msg, kind: str, reason: str) -> None:
            if self.letters_fail:
                raise PublishUnknownError("no answer")
            self.letters.append((message.data, kind))

        self.letters: list[tuple[bytes, str]] = []
        self.letters_fail = False
        self.broker = ResilientPullBroker(
            connection, publisher, CHECKS_STREAM, CONSUMER, ensure=ensure, batch=16, dead_letters=keep
        )
        self.task: AsyncTaskiqDecoratedTask[[dict[str, Any]], Any] = self.broker.register_task(run, name)
        self.finish = asyncio.Event()
        receiver = Receiver(self.broker, max_async_tasks=10, ack_type=AcknowledgeType.WHEN_EXECUTED)
        self.listening = asyncio.create_task(receiver.listen(self.finish))

    async def stop(self) -> None:
        self.finish.set()
        await self.listening
        await self.broker.shutdown()


@asynccontextmanager
async def working(
    connection: NatsConnection, publisher: Publisher, *, name: str = "run_check", body: Body | None = None
) -> AsyncIterator[Worker]:
    await ensure_consumer(connection.js, "eu")
    worker = Worker(connection, publisher, name, body)
    yield worker
    await worker.stop()


async def send(publisher: Publisher, name: str, *, task: str = "run_check") -> None:
    payload = b'{"name":"%b"}' % name.encode()
    await publisher.send(f"checks.eu.{name}", encode_task(task, name, payload), message_id=name)


async def waiting_checks(connection: NatsConnection) -> int:
    return (await connection.js.stream_info(CHECKS_STREAM)).state.messages


async def until_empty(connection: NatsConnection, within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while await waiting_checks(connection):  # noqa: ASYNC110 # a stream has no event to wait for
            await asyncio.sleep(0.02)


async def test_a_task_whose_acknowledgement_can_not_be_sent_comes_again(
    server: NatsServer, publisher: Publisher
) -> None:
    connection = await connect([server.url], name="worker", buffer_writes=False)

    async def lose_the_connection_once(_: dict[str, Any]) -> None:
        if len(worker.seen) == 1:
            await server.kill()
            await until(lambda: not connection.is_connected, what="the loss of the connection")

    async with working(connection, publisher, body=lose_the_connection_once) as worker:
        await send(publisher, "a")
        await until(lambda: worker.broker.pull.in_hand == 0 and bool(worker.seen), what="the end of the task")
        await server.start()
        await until(lambda: worker.seen == ["a", "a"], what="the task to come again")
        await until_empty(connection)
    await connection.close()


async def test_a_task_runs_once_and_leaves_the_stream(connection: NatsConnection, publisher: Publisher) -> None:
    async with working(connection, publisher) as worker:
        for number in range(50):
            await send(publisher, str(number))
        await until_empty(connection)
        assert sorted(worker.seen, key=int) == [str(number) for number in range(50)]


async def test_a_task_kicked_by_taskiq_goes_to_the_subject_of_its_label_once(
    connection: NatsConnection, publisher: Publisher
) -> None:
    async with working(connection, publisher) as worker:
        kicker = worker.task.kicker().with_labels(tocsin_subject="checks.eu.kicked").with_task_id("one")
        await kicker.kiq({"name": "kicked"})
        await kicker.kiq({"name": "kicked"})
        await until_empty(connection)
        assert worker.seen == ["kicked"]
        with pytest.raises(SendTaskError):
            await worker.task.kiq({"name": "nowhere"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00",
        b'{"task_id":"a"}',
        b'{"task_id":"a","task_name":"run_check","labels":{},"args":{},"kwargs":{}}',
        b'{"task_id":"a","task_name":"run_check","labels":{"n":"x"},"labels_types":{"n":2},"args":[],"kwargs":{}}',
    ],
    ids=["empty", "not text", "incomplete", "wrong type", "bad label"],
)
async def test_what_is_not_a_task_becomes_a_dead_letter_and_is_counted_and_said(
    body: bytes, connection: NatsConnection, publisher: Publisher
) -> None:
    async with working(connection, publisher) as worker:
        with capture_logs() as logs:
            await publisher.send("checks.eu.broken", body)
            await until_empty(connection)
        assert worker.broker.undecodable == 1
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["message is not a task"]
        assert worker.letters == [(body, "undecodable")]
        await send(publisher, "good")
        await until(lambda: worker.seen == ["good"])


async def test_an_unknown_task_waits_for_a_worker_that_knows_it(
    connection: NatsConnection, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "UNKNOWN_TASK_DELAY_SECONDS", 0.1)
    async with working(connection, publisher) as old:
        await send(publisher, "fresh", task="new_task")
        await until(lambda: old.broker.unknown_tasks == 1)
        assert await waiting_checks(connection) == 1
        async with working(connection, publisher, name="new_task") as new:
            await until(lambda: new.seen == ["fresh"])
        assert old.seen == []


async def test_a_task_that_nobody_knows_for_long_becomes_a_dead_letter(
    connection: NatsConnection, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "UNKNOWN_TASK_DELAY_SECONDS", 0.02)
    async with working(connection, publisher) as worker:
        worker.broker._unknown_patience = 2.0
        await send(publisher, "lost", task="no_such_task")
        await until_empty(connection)
        assert worker.broker.unknown_tasks > broker_module.UNKNOWN_TASK_DELIVERIES, (
            "so many deliveries alone are no reason"
        )
        assert [kind for _, kind in worker.letters] == ["unknown_task"]


async def test_a_message_stays_in_the_queue_until_its_dead_letter_is_kept(
    connection: NatsConnection, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "UNKNOWN_TASK_DELAY_SECONDS", 0.02)
    async with working(connection, publisher) as worker:
        worker.letters_fail = True
        await publisher.send("checks.eu.broken", b"no task")
        await until(lambda: worker.broker.undecodable > 2)
        assert await waiting_checks(connection) == 1
        worker.letters_fail = False
        await until_empty(connection)
        assert worker.letters == [(b"no task", "undecodable")]


async def test_a_running_task_finishes_after_the_stop_and_is_not_run_twice(
    connection: NatsConnection, publisher: Publisher
) -> None:
    async def slow(check: dict[str, Any]) -> None:
        await asyncio.sleep(4.5)  # longer than ack_wait

    async with working(connection, publisher, body=slow) as first:
        await send(publisher, "slow")
        await until(lambda: first.seen == ["slow"])
        first.finish.set()
        async with working(connection, publisher) as second:
            await first.listening
            await until_empty(connection)
            assert second.seen == []


async def test_an_idle_worker_stops_at_once_and_leaves_no_task(
    connection: NatsConnection, publisher: Publisher
) -> None:
    before = asyncio.all_tasks()
    async with working(connection, publisher) as worker:
        await until(lambda: worker.broker.pull.silence < 1)
        async with asyncio.timeout(10):
            await worker.stop()
    await until(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")


async def test_a_lost_consumer_ends_the_receiver_with_its_reason(
    connection: NatsConnection, publisher: Publisher
) -> None:
    await ensure_consumer(connection.js, "eu")
    worker = Worker(connection, publisher, "run_check", None)
    await until(lambda: worker.broker.pull.silence < 1)
    await connection.close()
    with pytest.raises(ExceptionGroup) as failure:
        await asyncio.wait_for(worker.listening, 30)
    assert failure.value.subgroup(ConsumerLostError) is not None
    await worker.broker.shutdown()


@pytest.mark.slow
async def test_a_worker_is_back_after_each_of_twenty_faults_in_a_row(
    server: NatsServer, connection: NatsConnection, publisher: Publisher
) -> None:
    choose = new_dice()

    async def kill() -> None:
        await server.kill()
        await server.start()

    async def delete_consumer() -> None:
        await connection.js.delete_consumer(CHECKS_STREAM, CONSUMER)

    async def delete_stream() -> None:
        await connection.js.delete_stream(CHECKS_STREAM)

    async with working(connection, publisher) as worker:
        for number in range(20):
            fault = choose.choice([server.restart, kill, delete_consumer, delete_stream])
            try:
                await fault()
            except NatsError as error:  # the faults come faster than the mending
                print(f"{number} {fault}: {error}")
            name = str(number)
            await send_until_stored(
                publisher, encode_task("run_check", name, b'{"name":"%b"}' % name.encode()), name
            )
            await until(lambda name=name: name in worker.seen, what=f"task {number}")  # type: ignore[misc]
        assert not worker.listening.done()
