"""Bring the schema to this release: ``tocsin migrate``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from shared.db.base import SCHEMA_REVISION
from shared.db.engine import parse_url
from shared.db.errors import DatabaseError, MigrationError, sqlstate

Progress = Callable[[str], None]

_IN_USE: Final = ("55P03", "40P01")  # a lock not available in time, or two who wait for each other
_QUERY_CANCELED: Final = "57014"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a migration waits; all times in seconds.

    A statement that waits for a lock makes everybody wait who comes after it, so it gives up after ``lock`` and the
    revision is tried again after ``pause``, ``attempts`` times in all. ``statement`` bounds one statement, and the
    wait for another migrator.
    """

    lock: float = 5.0
    statement: float = 600.0
    attempts: int = 6
    pause: float = 5.0


_PATIENCE: Final = Patience()


def configuration(url: str, on_progress: Progress | None = None, patience: Patience = _PATIENCE) -> Config:
    """Alembic's settings for this installation, wherever it lies: the scripts come as a package of their own."""
    found = find_spec("migrations")
    if found is None or found.origin is None:
        raise MigrationError("the package 'migrations' is missing from this installation: install tocsin again")
    config = Config()
    config.set_main_option("script_location", str(Path(found.origin).parent).replace("%", "%%"))
    config.attributes["url"] = url
    config.attributes["patience"] = patience
    if on_progress is not None:
        config.attributes["on_version_apply"] = _announce(on_progress)
    return config


def upgrade(
    url: str, on_progress: Progress | None = None, revision: str = "head", patience: Patience = _PATIENCE
) -> None:
    """Apply what is missing. Blocks, and runs its own event loop: call it from a thread inside of one.

    Each revision is one transaction: what is applied stays, and the next call goes on behind it. The schema of a
    newer release is left as it is: this one works on it, and going back must not end here. Raises
    ``DatabaseUnusableError`` for a wrong URL and ``MigrationError`` for everything else, in one line.
    """
    parse_url(url)
    tell = on_progress or _say_nothing
    for attempt in range(1, patience.attempts + 1):
        try:
            command.upgrade(configuration(url, tell, patience), revision)
        except (SQLAlchemyError, OSError, CommandError) as error:
            if newer := _newer_revision(error):
                tell(f"the schema is at {newer}, newer than this release needs ({SCHEMA_REVISION}): nothing to do")
                return
            if sqlstate(error) not in _IN_USE or attempt == patience.attempts:
                raise MigrationError(_explain(error, patience)) from error
            tell(f"a table is in use: trying again, attempt {attempt + 1} of {patience.attempts}")
            time.sleep(patience.pause)
        else:
            return


def main() -> int:
    """Migrate the database of ``TOCSIN_DATABASE_URL``, one line per revision; the exit code of the process."""
    url = os.environ.get("TOCSIN_DATABASE_URL", "")
    try:
        upgrade(url, _print)
    except DatabaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _print("the schema is up to date")
    return 0


def _explain(error: Exception, patience: Patience) -> str:
    """What was applied before has been announced; the revision that failed left nothing behind."""
    state, original = sqlstate(error), getattr(error, "orig", None) or error
    if state in _IN_USE:
        return (
            f"a table is in use and was not free within {patience.lock:g} s, {patience.attempts} times: end what "
            "holds it (see pg_stat_activity for old transactions), then run tocsin migrate again"
        )
    if state == _QUERY_CANCELED:
        return (
            f"a statement, or the wait for another migrator, took longer than {patience.statement:g} s: see "
            "pg_stat_activity for what runs, then run tocsin migrate again"
        )
    return f"the revision was not applied: {original}"


def _newer_revision(error: Exception) -> str:
    """The revision that the database is at, when only a newer release knows it; otherwise nothing."""
    unknown = str(getattr(error.__cause__, "argument", ""))
    return unknown if unknown.isdecimal() and unknown > SCHEMA_REVISION else ""


def _announce(on_progress: Progress) -> Callable[..., None]:
    def announce(*, step: Any, **_: Any) -> None:
        script = step.up_revision
        on_progress(f"{'applied' if step.is_upgrade else 'took back'} {script.revision}: {script.doc}")

    return announce


def _say_nothing(_: str) -> None:
    pass


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
