"""The first start makes one organisation, one owner and one key, and no later start makes another."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from hashlib import scrypt

import pytest
from sqlalchemy import text

from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.services.api_keys import Scope, authenticate
from shared.services.bootstrap import bootstrap, main


async def test_two_processes_that_start_at_once_make_one_organisation(database: Database) -> None:
    made = await asyncio.gather(*(bootstrap(database, SystemClock()) for _ in range(4)))
    (credentials,) = [item for item in made if item]
    async with database.system() as session:
        principal = await authenticate(session, credentials.api_key, SystemClock())
        assert principal is not None
        assert principal.scopes == frozenset(Scope)
        stored = (await session.execute(text("SELECT email, password_hash FROM users"))).one()
        assert await session.scalar(text("SELECT count(*) FROM organisations")) == 1
    kind, n, r, p, salt, digest = stored.password_hash.split("$")
    assert credentials.password is not None
    again = scrypt(credentials.password.encode(), salt=b64decode(salt), n=int(n), r=int(r), p=int(p), maxmem=2**28)
    assert (kind, stored.email, b64decode(digest)) == ("scrypt", credentials.email, again)


async def test_a_lost_key_is_replaced_and_the_owner_stays(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await bootstrap(database, SystemClock())
    assert first is not None
    monkeypatch.setenv("TOCSIN_DATABASE_URL", database_url)
    assert await asyncio.to_thread(main, or_renew=True) == 0
    renewed = json.loads(capsys.readouterr().out)
    assert (renewed["email"], renewed["password"]) == (first.email, None)
    async with database.system() as session:
        old, new = [await authenticate(session, key, SystemClock()) for key in (first.api_key, renewed["api_key"])]
        assert old is not None
        assert new is not None
        assert old.organisation_id == new.organisation_id


async def test_the_command_prints_json_and_then_null(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", database_url)
    assert await asyncio.to_thread(main) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"api_key", "email", "password"}
    assert await asyncio.to_thread(main) == 0
    assert json.loads(capsys.readouterr().out) is None
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "postgresql://tocsin@127.0.0.1:1/tocsin")
    assert await asyncio.to_thread(main) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
