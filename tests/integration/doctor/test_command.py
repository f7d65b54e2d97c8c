"""``tocsin doctor`` as a person or a program calls it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from cli import doctor_place
from cli.data_directory import DataDirectory
from shared.db.session import Database
from shared.services.doctor.findings import Severity
from shared.testing.nats import NatsServer
from shared.testing.tocsin import Tocsin, eventually
from tests.commands import run
from tests.integration.path.conftest import make_tenant

KEY = "k" * 32


async def doctor(*words: str, folder: Path | None = None, **variables: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    command = (sys.executable, "-m", "cli.main", "doctor", *words)
    return await run(*command, env={**environment, **variables}, cwd=folder)


async def test_a_server_that_is_away_is_one_finding(database_url: str) -> None:
    code, output = await doctor(
        "--json",
        TOCSIN_DATABASE_URL="postgresql://tocsin:hidden@127.0.0.1:1/tocsin",
        TOCSIN_NATS_URL="nats://tocsin:hidden@127.0.0.1:1",
        TOCSIN_SECRET_KEYS=KEY,
    )
    told = json.loads(output)
    findings = [finding["mend"] for check in told["checks"] for finding in check["findings"]]
    assert code == 1
    assert findings == ["check TOCSIN_DATABASE_URL and the server", "check TOCSIN_NATS_URL and the server"]
    assert sum(check["skipped"] is not None for check in told["checks"]) == 3
    assert "hidden" not in output


async def test_wrong_and_misspelt_settings_are_named_all_at_once(database_url: str, nats: NatsServer) -> None:
    code, output = await doctor(
        "--servers",
        TOCSIN_DATABASE_URL=database_url,
        TOCSIN_NATS_URL=nats.url,
        TOCSIN_SECRET_KEY=KEY,
        TOCSIN_API_PORT="web",
        TOCSIN_API_SERVICE_PORT="80",
    )
    assert code == 1
    for line in (
        "✘ settings: TOCSIN_SECRET_KEYS is not set",
        "✘ settings: TOCSIN_API_PORT",
        "! unread variables: nobody reads TOCSIN_SECRET_KEY\n  → did you mean TOCSIN_SECRET_KEYS?",
        "✔ PostgreSQL\n✔ NATS",
        "2 faults and 1 warning in 4 checks",
    ):
        assert line in output, output
    assert "SERVICE" not in output


async def test_the_file_of_the_first_key_is_looked_at(tmp_path: Path, database: Database) -> None:
    [missing] = await doctor_place.credentials(tmp_path, database)
    assert "holds no API key" in missing.what
    (tmp_path / "credentials.json").write_text('{"api_key": "tcs_unknown"}')
    (tmp_path / "credentials.json").chmod(0o644)
    readable, unknown = await doctor_place.credentials(tmp_path, database)
    assert readable.severity is Severity.WARNING
    assert "chmod 600" in readable.mend
    assert "is not valid" in unknown.what


@pytest.mark.parametrize(
    ("named", "is_held", "taken"),
    [
        pytest.param(["TOCSIN_DATABASE_URL"], True, {"TOCSIN_NATS_URL", "TOCSIN_SECRET_KEYS"}, id="its NATS"),
        pytest.param(["TOCSIN_DATABASE_URL"], False, set(), id="a directory that nobody uses"),
        pytest.param(["TOCSIN_DATABASE_URL", "TOCSIN_NATS_URL"], True, set(), id="both servers are named"),
    ],
)
def test_what_is_not_named_is_that_of_tocsin_up(
    named: list[str], is_held: bool, taken: set[str], tmp_path: Path
) -> None:
    environment = dict.fromkeys(named, "named")
    with ExitStack() as stack:
        directory = stack.enter_context(DataDirectory.locked(tmp_path))
        directory.secret_values()
        if not is_held:
            stack.close()
        found = doctor_place.environment_of(tmp_path, environment)
    assert found.keys() - environment.keys() == taken
    assert environment.items() <= found.items()


async def finds(folder: Path, *expected: str, code: int) -> bool:
    """Whether the doctor's answer is this one; printed where a test fails for another."""
    found, output = await doctor("--data-dir", "data", folder=folder)
    print(output)
    return found == code and all(line in output for line in expected)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["short", "long" * 25], ids=["short path", "path too long for a socket"])
async def test_a_whole_installation_is_sound_until_its_scheduler_stands_still(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    async with Tocsin(place / "data", "--schedulers", "1") as tocsin:
        await tocsin.create_monitor(
            name="m", interval_seconds=5, check={"kind": "tcp", "host": "127.0.0.1", "port": 9}
        )
        await eventually("a sound installation", lambda: finds(place, "Nothing wrong", code=0), within=90)
        tocsin.send("scheduler-1", signal.SIGSTOP)
        silence = ("no scheduler has dispatched", "→ start a scheduler")
        await eventually("the scheduler that stands still", lambda: finds(place, *silence, code=1), within=90)
        tocsin.send("scheduler-1", signal.SIGCONT)
    code, output = await doctor("--data-dir", "data", folder=place)
    assert (code, "✘ tocsin up: nothing runs in data\n  → start tocsin up --data-dir data" in output) == (1, True)
    assert output.endswith("1 fault in 4 checks; 1 not made\n")


async def test_lost_slots_are_printed_one_by_one(database: Database, database_url: str) -> None:
    monitor_id = await (await make_tenant(database)).create(interval_seconds=10)
    assert await doctor("--slots", TOCSIN_DATABASE_URL=database_url) == (
        0,
        "0 slots were due and had their time; 0 have no record\n",
    )
    async with database.system() as session:
        await session.execute(text("UPDATE schedule_periods SET starts_at = now() - interval '10 minutes'"))
    began = time.monotonic()
    code, output = await doctor("--slots", "--since", "1h", TOCSIN_DATABASE_URL=database_url)
    lost = [line for line in output.splitlines() if line.endswith(f"default  {monitor_id}  nothing is stored")]
    assert code == 1
    # Eight minutes of slots have had their time, and those that came to it meanwhile.
    assert 46 <= len(lost) <= 50 + (time.monotonic() - began) / 10, output
    _, told = await doctor("--slots", "--json", TOCSIN_DATABASE_URL=database_url)
    assert 46 <= len(json.loads(told)["unaccounted"]) <= 50 + (time.monotonic() - began) / 10


@pytest.mark.parametrize(
    ("words", "url", "said"),
    [
        (("--slots", "--since", "soon"), None, "write a number and s, m, h or d"),
        (("--slots",), "mysql://x", "postgresql://"),
        ((), None, "set TOCSIN_DATABASE_URL, or name the --data-dir"),
    ],
)
async def test_what_can_not_be_used_gets_one_line(
    tmp_path: Path, words: tuple[str, ...], url: str | None, said: str
) -> None:
    variables = {"TOCSIN_DATABASE_URL": url} if url else {}
    code, output = await doctor(*words, folder=tmp_path, **variables)
    assert code == 2
    assert said in output
    assert len(output.strip().splitlines()) == 1
