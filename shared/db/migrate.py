"""Bring the schema to this release: ``tocsin migrate``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import SQLAlchemyError

from shared.db.engine import parse_url
from shared.db.errors import DatabaseError, MigrationError

Progress = Callable[[str], None]


def configuration(url: str, on_progress: Progress | None = None) -> Config:
    """Alembic's settings for this installation, wherever it lies: the scripts come as a package of their own."""
    found = find_spec("migrations")
    if found is None or found.origin is None:
        raise MigrationError("the package 'migrations' is missing from this installation: install tocsin again")
    config = Config()
    config.set_main_option("script_location", str(Path(found.origin).parent).replace("%", "%%"))
    config.attributes["url"] = url
    if on_progress is not None:
        config.attributes["on_version_apply"] = _announce(on_progress)
    return config


def upgrade(url: str, on_progress: Progress | None = None, revision: str = "head") -> None:
    """Apply what is missing. Blocks, and runs its own event loop: call it from a thread inside of one.

    Raises ``DatabaseUnusableError`` for a wrong URL and ``MigrationError`` for everything else, in one line.
    """
    parse_url(url)
    try:
        command.upgrade(configuration(url, on_progress), revision)
    except (SQLAlchemyError, OSError) as error:
        raise MigrationError(f"the schema is unchanged: {getattr(error, 'orig', None) or error}") from error


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


def _announce(on_progress: Progress) -> Callable[..., None]:
    def announce(*, step: Any, **_: Any) -> None:
        script = step.up_revision
        on_progress(f"{'applied' if step.is_upgrade else 'took back'} {script.revision}: {script.doc}")

    return announce


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
