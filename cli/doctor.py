"""``tocsin doctor``: is this installation whole? Names each fault and its mend."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import UsageError

_SPAN = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN = 1_000


def doctor(
    slots: Annotated[bool, typer.Option("--slots", help="Compare due slots with stored results.")] = False,
    since: Annotated[str, typer.Option(help="How far back: 30m, 1h, 2d.")] = "1h",
    data_dir: Annotated[Path, typer.Option(help="Of tocsin up, when TOCSIN_DATABASE_URL is not set.")] = Path(
        ".tocsin"
    ),
) -> None:
    """Check this installation and name each fault; exits with 1 when there is one."""
    from shared.db.errors import DatabaseError  # noqa: PLC0415 kept out of the start of other commands

    length_ms = parse_span(since)
    if not slots:
        raise UsageError("say what to check: --slots compares due slots with results")
    try:
        raise typer.Exit(asyncio.run(_audit(_database_url(data_dir), length_ms)))
    except DatabaseError as error:
        raise UsageError(str(error)) from None


def parse_span(text: str) -> int:
    """``30m``, ``1h``, ``2d`` in milliseconds; raises ``UsageError``."""
    found = _SPAN.fullmatch(text.strip())
    if not found or int(found[1]) == 0:
        raise UsageError(f"--since {text}: write a number and s, m, h or d, as in 1h")
    return int(found[1]) * _UNITS[found[2]]


def _database_url(data_dir: Path) -> str:
    from shared.embedded.postgres import Postgres  # noqa: PLC0415

    if url := os.environ.get("TOCSIN_DATABASE_URL"):
        return url
    if (data_dir / "postgres").is_dir():
        return Postgres(data_dir.absolute() / "postgres").url()
    raise UsageError(f"set TOCSIN_DATABASE_URL, or name the --data-dir of tocsin up: there is none at {data_dir}")


async def _audit(url: str, length_ms: int) -> int:
    from shared.db.session import Database  # noqa: PLC0415 kept out of the start of other commands
    from shared.domain.clock import SystemClock  # noqa: PLC0415
    from shared.services.slot_audit import audit_since  # noqa: PLC0415

    now_ms = SystemClock().now_ms()
    async with Database(url, application_name="tocsin-doctor") as database:
        await database.verify()
        async with database.system() as session:
            books = await audit_since(session, now_ms - length_ms, now_ms)
    typer.echo(f"{books.due} slots were due and had their time; {len(books.unaccounted)} have no record")
    for key in books.unaccounted[:_SHOWN]:
        typer.echo(f"✘ {_shown(key.slot_ms)}  {key.region}  {key.monitor_id}  nothing is stored")
    for key in books.unscheduled[:_SHOWN]:
        typer.echo(f"· {_shown(key.slot_ms)}  {key.region}  {key.monitor_id}  stored, though it was not due")
    if books.unaccounted:
        typer.echo("The API stores lost slots as missed within a minute; if these stay, look at its log.")
    return 1 if books.unaccounted else 0


def _shown(milliseconds: int) -> str:
    from shared.domain.clock import to_datetime  # noqa: PLC0415

    moment: datetime = to_datetime(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
