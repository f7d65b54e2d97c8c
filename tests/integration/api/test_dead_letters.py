"""``/v1/dead-letters`` over a real stream, for a tenant, for another one and for the operator; and the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text

from api.context import Context
from shared.contracts.names import TASKS_STREAM, task_subject
from shared.contracts.sealing import Sealer
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.services.api_keys import Scope
from shared.services.letter_desk import LetterDesk
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import Attempt, DeadLetter, LetterError, encode_letter, letter_id
from shared.testing.nats import NatsServer
from tests.integration.api.conftest import SECRET_KEY, Commits, PlayedDesk, Tenant, add_key

PATH = "/v1/dead-letters"
DAY_MS = 86_400_000
clock = SystemClock()


@dataclass(frozen=True)
class Letters:
    """Puts letters into the stream as workers do."""

    connection: NatsConnection
    publisher: Publisher
    count: Iterator[int] = field(default_factory=itertools.count)

    async def put(self, owner: UUID | None, *, days_old: float = 0, task: str = "deliver") -> str:
        # Of one millisecond they would have no order.
        failed_ms = clock.now_ms() + next(self.count) - round(days_old * DAY_MS)
        attempt = Attempt(failed_ms - 250, "http_503", "hooks.example answered 503", "worker:1", 0.25)
        letter = DeadLetter(
            id=letter_id(failed_ms, str(uuid4())),
            task=task,
            task_id=str(uuid4()),
            organisation_id=owner,
            arguments=msgspec.Raw(b'{"delivery":1}'),
            error=LetterError(attempt.error_kind, attempt.message),
            attempts=(attempt,),
            failed_at=to_datetime(failed_ms),
            worker="worker:1",
            subject=task_subject(owner, task),
        )
        await self.publisher.send(letter.place, encode_letter(letter))
        return str(letter.id)

    async def waiting_tasks(self) -> int:
        return int((await self.connection.js.stream_info(TASKS_STREAM)).state.messages)


@pytest.fixture
async def letters(nats: NatsServer) -> AsyncIterator[Letters]:
    connection = await connect([nats.url], name="test", buffer_writes=False)
    await ensure_streams(connection.js)
    async with Publisher(connection) as publisher:
        yield Letters(connection, publisher)
    await connection.close()


@pytest.fixture
def context(database: Database, desk: PlayedDesk, commits: Commits, letters: Letters) -> Context:
    bare = Context(database, Sealer([SECRET_KEY]), clock, desk, commits)
    return replace(bare, letters=LetterDesk(DeadLetterDesk(letters.connection, letters.publisher)))


async def listed(tenant: Tenant, **query: Any) -> list[str]:
    response = await tenant.client.get(PATH, params=query)
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["items"]]


async def test_a_letter_reads_as_the_contract_says(alice: Tenant, letters: Letters) -> None:
    letter = await letters.put(alice.organisation_id)
    shown = (await alice.client.get(f"{PATH}/{letter}")).json()
    assert {"id", "task", "arguments", "error", "attempts", "failed_at"} <= shown.keys()
    assert (shown["id"], shown["task"], shown["arguments"]) == (letter, "deliver", {"delivery": 1})
    assert shown["error"] == {"kind": "http_503", "message": "hooks.example answered 503"}
    assert {"at", "error_kind", "message"} <= shown["attempts"][0].keys()


async def test_an_organisation_sees_its_own_letters_only(alice: Tenant, bob: Tenant, letters: Letters) -> None:
    mine, theirs = await letters.put(alice.organisation_id), await letters.put(bob.organisation_id)
    platform = await letters.put(None)
    assert await listed(alice) == [mine]
    for foreign in (theirs, platform, str(uuid4())):
        answers = [
            await alice.client.get(f"{PATH}/{foreign}"),
            await alice.client.post(f"{PATH}/{foreign}/replay"),
            await alice.client.delete(f"{PATH}/{foreign}"),
        ]
        assert [answer.status_code for answer in answers] == [404] * 3
    assert await listed(bob) == [theirs]
    assert await letters.waiting_tasks() == 0


async def test_the_operator_sees_those_of_the_platform_too(
    alice: Tenant, bob: Tenant, letters: Letters, database: Database
) -> None:
    async with database.system() as session:
        operator = text("UPDATE organisations SET is_operator = true WHERE id = :id")
        await session.execute(operator, {"id": alice.organisation_id})
    old, own = await letters.put(None, days_old=1), await letters.put(alice.organisation_id)
    await letters.put(bob.organisation_id)
    assert await listed(alice) == [own, old]
    assert (await alice.client.post(f"{PATH}/{old}/replay")).status_code == 202
    assert await letters.waiting_tasks() == 1


async def test_pages_filters_and_order(alice: Tenant, letters: Letters) -> None:
    owner = alice.organisation_id
    oldest, middle = await letters.put(owner, days_old=3), await letters.put(owner, days_old=2, task="other")
    newest = await letters.put(owner)
    first = (await alice.client.get(PATH, params={"limit": 2})).json()
    assert [item["id"] for item in first["items"]] == [newest, middle]
    assert await listed(alice, limit=2, cursor=first["next_cursor"]) == [oldest]
    assert await listed(alice, task="other") == [middle]
    wrong = [
        await alice.client.get(PATH, params=query) for query in ({"task": "a.*"}, {"cursor": "x"}, {"limit": 0})
    ]
    assert [answer.status_code for answer in wrong] == [422] * 3


async def test_replay_is_done_once_per_key_and_delete_deletes(alice: Tenant, letters: Letters) -> None:
    letter, other = await letters.put(alice.organisation_id), await letters.put(alice.organisation_id)
    headers = {"Idempotency-Key": "again"}
    answers = [await alice.client.post(f"{PATH}/{letter}/replay", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert await letters.waiting_tasks() == 1
    assert (await alice.client.post(f"{PATH}/{letter}/replay")).status_code == 404
    assert (await alice.client.delete(f"{PATH}/{other}")).status_code == 204
    assert await listed(alice) == []


async def test_purge_by_age(alice: Tenant, bob: Tenant, letters: Letters) -> None:
    young = await letters.put(alice.organisation_id, days_old=6.9)
    await letters.put(alice.organisation_id, days_old=7.1)
    foreign = await letters.put(bob.organisation_id, days_old=30)
    answer = await alice.client.post(f"{PATH}/purge", json={"older_than_days": 7})
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1})
    assert (await listed(alice), await listed(bob)) == ([young], [foreign])
    for body in ({}, {"older_than_days": -1}, {"older_than_days": 7, "all": True}):
        assert (await alice.client.post(f"{PATH}/purge", json=body)).status_code == 422


async def test_reading_needs_the_scope_read_and_changing_the_scope_admin(
    alice: Tenant, letters: Letters, database: Database
) -> None:
    letter = await letters.put(alice.organisation_id)
    for scope in (Scope.READ, Scope.WRITE):
        key = await add_key(database, alice.organisation_id, scope)
        alice.client.headers["Authorization"] = f"Bearer {key}"
        assert await listed(alice) == [letter]
        refused = [
            await alice.client.post(f"{PATH}/{letter}/replay"),
            await alice.client.delete(f"{PATH}/{letter}"),
            await alice.client.post(f"{PATH}/purge", json={"older_than_days": 0}),
        ]
        assert [answer.status_code for answer in refused] == [403] * 3
    assert await letters.waiting_tasks() == 0


async def test_without_nats_the_answer_is_503(alice: Tenant, letters: Letters, nats: NatsServer) -> None:
    await nats.stop()
    answer = await alice.client.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (503, "queue_unavailable")


async def command(*words: str, url: str | None = None, folder: Path | None = None) -> tuple[int, str, str]:
    """Exit code and output of ``tocsin dead-letters``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    if url:
        environment["TOCSIN_NATS_URL"] = url
    line = (sys.executable, "-m", "cli.main", "dead-letters", *words)
    ended = await asyncio.to_thread(
        subprocess.run, line, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stdout, ended.stderr


async def test_the_command_lists_shows_replays_deletes_and_purges(letters: Letters, nats: NatsServer) -> None:
    owner = uuid4()
    first, second, third = await letters.put(owner), await letters.put(None, days_old=1), await letters.put(owner)
    code, output, _ = await command("list", "--json", url=nats.url)
    assert (code, [letter["id"] for letter in json.loads(output)]) == (0, [third, first, second])
    outcomes = await asyncio.gather(
        command("list", "--organisation", "platform", url=nats.url),
        command("show", second, url=nats.url),
        command("replay", first, url=nats.url),
        command("delete", third, url=nats.url),
    )
    assert [code for code, _, _ in outcomes] == [0] * 4, outcomes
    assert outcomes[0][1].startswith(second)
    assert "http_503: hooks.example answered 503" in outcomes[1][1]
    assert '{"delivery": 1}' in outcomes[1][1]
    assert await letters.waiting_tasks() == 1
    code, output, _ = await command("purge", "--older-than-days", "0.5", url=nats.url)
    assert (code, output) == (0, "1 dead letter deleted\n")


async def test_the_command_says_what_keeps_it_from_working(
    letters: Letters, nats: NatsServer, tmp_path: Path
) -> None:
    missing = str(uuid4())
    outcomes = await asyncio.gather(
        command("show", missing, url=nats.url),
        command("list", "--data-dir", str(tmp_path)),
        command("list", "--organisation", "acme", url=nats.url),
        command("delete", missing.replace("-", ""), url=nats.url),
    )
    errors = [error for _, _, error in outcomes]
    assert [code for code, _, _ in outcomes] == [2] * 4
    assert (
        errors[0] == f"tocsin: there is no dead letter {missing}: tocsin dead-letters list shows those that wait\n"
    )
    assert "set TOCSIN_NATS_URL, or name the --data-dir" in errors[1]
    assert "give the id of one, or platform" in errors[2]
    assert "write an id as in 019a7f3e-" in errors[3]
    assert all(error.count("\n") == 1 for error in errors)


async def test_the_command_names_the_tasks_that_have_letters(letters: Letters, nats: NatsServer) -> None:
    assert await command("list", "--task", "odd", url=nats.url) == (0, "There are no dead letters.\n", "")
    await letters.put(None, task="one")
    await letters.put(uuid4(), task="other")
    _, output, _ = await command("list", "--task", "odd", url=nats.url)
    assert output == "There are none of odd. There are dead letters of one, other.\n"


@pytest.mark.parametrize("word", ["replay", "delete"])
async def test_a_letter_that_is_not_there_keeps_none_behind_it_waiting(
    word: str, letters: Letters, nats: NatsServer
) -> None:
    first, second, missing = await letters.put(None), await letters.put(None), str(uuid4())
    code, output, error = await command(word, first, missing, second, url=nats.url)
    assert (code, [line.split()[0] for line in output.splitlines()]) == (2, [first, second])
    assert missing in error
    assert json.loads((await command("list", "--json", url=nats.url))[1]) == []
