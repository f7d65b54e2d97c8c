"""Which installation the doctor looks at: the one of the environment, or that of ``tocsin up`` in a directory."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from cli.data_directory import DataDirectory, is_running
from cli.errors import UsageError
from cli.process_settings import PROCESSES, readers
from shared.db.repositories import api_keys
from shared.db.session import Database
from shared.embedded.errors import EmbeddedServerError
from shared.embedded.nats import Nats
from shared.embedded.postgres import Postgres
from shared.services.api_keys import hash_key
from shared.services.doctor.findings import Finding, Severity
from shared.settings import PREFIX, problems

# Names that resemble ours this much are meant to be ours; what Kubernetes adds for a service does not.
_RESEMBLANCE: Final = 0.85
_SMALL_DISK_BYTES: Final = 1 << 30
_SMALL_DISK_SHARE: Final = 0.05


def environment_of(data_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What the processes of that installation read.

    What the environment does not name is that of ``tocsin up`` in the directory: it runs the servers that are not
    named to it. Raises ``UsageError`` when neither names a database.
    """
    has_database = bool(environment.get("TOCSIN_DATABASE_URL"))
    if has_database and (environment.get("TOCSIN_NATS_URL") or not is_running(data_dir)):
        return dict(environment)
    if not has_database and not (data_dir / "postgres").is_dir():
        raise UsageError(
            f"set TOCSIN_DATABASE_URL, or name the --data-dir of tocsin up: there is none at {data_dir}"
        )
    directory = DataDirectory(data_dir.absolute())
    secrets = directory.secret_values()
    nats = Nats(directory.nats, directory.port("nats", lambda _: True), 0, secrets["nats_password"])
    ours = {"TOCSIN_NATS_URL": nats.url, "TOCSIN_SECRET_KEYS": secrets["secret_keys"]}
    if not has_database:
        ours["TOCSIN_DATABASE_URL"] = _own_database(directory)
    return {**ours, **environment}


def _own_database(directory: DataDirectory) -> str:
    try:
        return Postgres(directory.postgres).url()
    except EmbeddedServerError as error:
        raise UsageError(str(error)) from None


async def settings() -> list[Finding]:
    """Every value that keeps a process from starting, once, however many processes read it."""
    wrong = {problem.variable: problem for of_process in PROCESSES.values() for problem in problems(of_process)}
    return [Finding(f"{variable} {problem.problem}", problem.mend) for variable, problem in wrong.items()]


async def unread_variables(environment: Mapping[str, str]) -> list[Finding]:
    """A misspelt variable is otherwise silent: its default rules."""
    known = readers()
    found = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in known:
            continue
        if meant := get_close_matches(name, known, 1, _RESEMBLANCE):
            found.append(Finding(f"nobody reads {name}", f"did you mean {meant[0]}?", Severity.WARNING))
    return found


async def is_up(data_dir: Path) -> list[Finding]:
    """Whether ``tocsin up`` holds its directory."""
    if is_running(data_dir):
        return []
    return [Finding(f"nothing runs in {data_dir}", f"start tocsin up --data-dir {data_dir}")]


async def disk(data_dir: Path) -> list[Finding]:
    usage = shutil.disk_usage(data_dir)
    if usage.free >= max(_SMALL_DISK_BYTES, _SMALL_DISK_SHARE * usage.total):
        return []
    return [
        Finding(
            f"{usage.free / (1 << 20):.0f} MiB are free where {data_dir} lies",
            "make room: a full disk stops PostgreSQL and NATS",
            Severity.WARNING,
        )
    ]


async def credentials(data_dir: Path, database: Database) -> list[Finding]:
    """Whether the file of the first key is private, and its key still opens the API."""
    path = data_dir / "credentials.json"
    try:
        key = str(json.loads(path.read_text(encoding="utf-8"))["api_key"])
    except (OSError, ValueError, KeyError, TypeError):
        return [Finding(f"{path} holds no API key", "remove it and start tocsin up: it makes another key")]
    found = []
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        found.append(Finding(f"{path} can be read by other users", f"run chmod 600 {path}", Severity.WARNING))
    async with database.system() as session:
        stored = await api_keys.find(session, hash_key(key))
    if stored is None or stored.revoked_at is not None:
        found.append(Finding(f"the key in {path} is not valid", f"remove {path} and start tocsin up again"))
    return found
