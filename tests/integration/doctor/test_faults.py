"""Faults of NATS and of the work itself, seeded one by one: each is found, with its mend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from shared.contracts import names
from shared.messaging.beat import beats_stream
from shared.messaging.connect import connect
from shared.messaging.declarations import bucket_stream, declared_consumers, declared_streams
from shared.services.doctor import queue
from shared.services.doctor import work as at_work
from shared.services.doctor.findings import Finding
from shared.testing.nats import NatsServer
from tests.integration.doctor.conftest import Patient

WANTED = (*declared_streams(), beats_stream())

Look = Callable[[Patient], Awaitable[list[Finding]]]
Seed = Callable[[Patient], Awaitable[object]]


async def streams(p: Patient) -> list[Finding]:
    return await queue.streams(p.connection, WANTED)


async def consumers(p: Patient) -> list[Finding]:
    return await at_work.consumers(p.database, p.connection)


async def schedules(p: Patient) -> list[Finding]:
    return await at_work.schedules(p.database, p.connection, p.clock, settle=0.01)


async def work(p: Patient) -> list[Finding]:
    """The beat comes from the server, by its own clock."""
    await p.report_progress()
    found = await at_work.work(p.database, p.connection, p.clock)
    return [finding for finding in found if "beat" not in finding.what]


async def change_stream(p: Patient) -> None:
    found = (await p.connection.js.stream_info(names.CHECKS_STREAM)).config
    await p.connection.js.update_stream(found.evolve(max_age=3600.0))


async def change_consumer(p: Patient) -> None:
    await p.connection.js.add_consumer(
        names.CHECKS_STREAM,
        ConsumerConfig(
            durable_name="worker-default",
            filter_subject="checks.default.>",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=60.0,
            max_ack_pending=20_000,
        ),
    )


async def lose_reader(p: Patient) -> None:
    await p.connection.js.delete_consumer(names.RESULTS_STREAM, names.RECORDER_CONSUMER)
    for stream, consumer in declared_consumers([]):
        if stream == names.RESULTS_STREAM:
            await p.connection.js.add_consumer(stream, consumer)


async def fill(p: Patient) -> None:
    found = (await p.connection.js.stream_info(names.RESULTS_STREAM)).config
    await p.connection.js.update_stream(found.evolve(max_bytes=1_000))
    await p.connection.js.publish("results.default", b"x" * 900)


async def change_monitor_only_here(p: Patient) -> None:
    await p.sql("UPDATE monitors SET revision = revision + 1")


async def forget_schedules(p: Patient) -> None:
    await p.connection.js.purge_stream(bucket_stream(names.SCHEDULES_BUCKET))


async def schedule_of_nobody(p: Patient) -> None:
    key = str(uuid4())
    await p.put(names.SCHEDULES_BUCKET, key, b'{"monitor_id": "' + key.encode() + b'"}')


async def set_clock(p: Patient) -> None:
    p.clock.off_ms = 90_000


FAULTS: dict[str, tuple[Look, Seed, str, str]] = {
    "wrong stream setting": (
        streams,
        change_stream,
        "stream CHECKS: max_age is 3600.0, not 172800.0",
        "restart a process",
    ),
    "missing stream": (
        streams,
        lambda p: p.connection.js.delete_stream(names.RESULTS_STREAM),
        "stream RESULTS is missing",
        "start any process",
    ),
    "full stream": (
        lambda p: queue.room(p.connection, WANTED),
        fill,
        "stream RESULTS is 9",
        "raise its limit",
    ),
    "wrong clock": (
        lambda p: queue.clock_skew(p.connection, WANTED, p.clock),
        set_clock,
        " s ahead of that of NATS",
        "chrony",
    ),
    "missing consumer": (
        consumers,
        lambda p: p.connection.js.delete_consumer(names.CHECKS_STREAM, "worker-default"),
        "consumer worker-default of stream CHECKS is missing",
        "tocsin worker --region default",
    ),
    "wrong consumer setting": (
        consumers,
        change_consumer,
        "consumer worker-default of stream CHECKS: ack_wait is 60.0, not 2.5",
        "restart a worker",
    ),
    "consumer without a reader": (
        consumers,
        lose_reader,
        "consumer recorder of stream RESULTS has no reader",
        "start a worker that has a database",
    ),
    "older schedule": (schedules, change_monitor_only_here, "1 of another revision", "start an API process"),
    "missing schedule": (schedules, forget_schedules, "1 missing", "start an API process"),
    "schedule too many": (schedules, schedule_of_nobody, "1 too many", "start an API process"),
    "stopped scheduler": (work, set_clock, "no scheduler has dispatched for 9", "tocsin scheduler"),
    "no leader": (
        work,
        lambda p: p.connection.js.purge_stream(bucket_stream(names.LEADER_BUCKET)),
        "no scheduler leads",
        "tocsin scheduler",
    ),
    "leadership given back": (
        work,
        lambda p: p.put(names.LEADER_BUCKET, names.LEADER_KEY, b""),
        "no scheduler leads",
        "tocsin scheduler",
    ),
    "blind monitor": (
        work,
        lambda p: p.sql("UPDATE schedule_periods SET starts_at = now() - interval '1 hour'"),
        "1 of 1 monitors have had no verdict",
        "tocsin doctor --slots",
    ),
    "dead letters": (
        lambda p: at_work.dead_letters(p.connection),
        lambda p: p.connection.js.publish("dead.platform.task.x", b"{}"),
        "a dead letter waits",
        "replay or delete",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_found_and_its_mend_named(patient: Patient, name: str) -> None:
    look, seed, what, mend = FAULTS[name]
    assert await look(patient) == []
    await seed(patient)
    [finding] = await look(patient)
    assert what in finding.what
    assert mend in finding.mend


async def take_without_waiting(p: Patient) -> None:
    """As a reader that never has to wait: at no moment does it have a request open."""
    inbox = p.connection.client.new_inbox()
    await p.connection.client.subscribe(inbox)
    request = f"$JS.API.CONSUMER.MSG.NEXT.{names.RESULTS_STREAM}.{names.RECORDER_CONSUMER}"
    while True:
        await p.connection.js.publish("results.default", b"x")
        await p.connection.client.publish(request, b'{"batch": 1, "no_wait": true}', reply=inbox)
        await asyncio.sleep(0.01)


async def test_a_reader_that_is_too_busy_to_ask_is_no_absent_one(patient: Patient) -> None:
    await lose_reader(patient)
    reading = asyncio.create_task(take_without_waiting(patient))
    assert await consumers(patient) == []
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_what_is_on_its_way_is_no_drift(patient: Patient) -> None:
    await patient.sql("UPDATE monitors SET revision = revision + 1")
    looking = asyncio.create_task(
        at_work.schedules(patient.database, patient.connection, patient.clock, settle=0.5)
    )
    await patient.copy_schedules()
    assert await looking == []


async def test_an_account_without_jetstream_is_found(tmp_path: Path) -> None:
    configuration = tmp_path / "nats.conf"
    configuration.write_text("accounts { A { users: [{ user: a, password: b }] } }")
    async with NatsServer(tmp_path / "nats", arguments=("-c", str(configuration))) as server:
        url = server.url.replace("nats://", "nats://a:b@")
        connection = await connect([url], name="tests", buffer_writes=False)
        [finding] = await queue.ready(connection)
        await connection.close()
    assert "JetStream does not answer" in finding.what
    assert "enable jetstream" in finding.mend
