"""``tocsin doctor``: is this installation whole? Names each fault and its mend."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Annotated

import typer

from cli.errors import UsageError

_SPAN = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN = 1_000


def doctor(
    slots: Annotated[bool, typer.Option("--slots", help="Compare due slots with stored results.")] = False,
    since: Annotated[str, typer.Option(help="How far back: 30m, 1h, 2d.")] = "1h",
) -> None:
    """Check this installation and name each fault; exits with 1 when there is one.

    Reads TOCSIN_DATABASE_URL.
    """
    length_ms = parse_span(since)
    if not slots:
        raise UsageError("say what to check: --slots compares due slots with results")
    raise typer.Exit(asyncio.run(_audit(length_ms)))


def parse_span(text: str) -> int:
    """``30m``, ``1h``, ``2d`` in milliseconds; raises ``UsageError``."""
    found = _SPAN.fullmatch(text.strip())
    if not found or int(found[1]) == 0:
        raise UsageError(f"--since {text}: write a number and s, m, h or d, as in 1h")
    return int(found[1]) * _UNITS[found[2]]


async def _audit(length_ms: int) -> int:
    from shared.db.session import Database  # noqa: PLC0415 kept out of the start of other commands
    from shared.domain.clock import SystemClock  # noqa: PLC0415
    from shared.services.slot_audit import audit_since  # noqa: PLC0415
    from shared.settings import DatabaseSettings, load  # noqa: PLC0415

    settings = load(DatabaseSettings)
    now_ms = SystemClock().now_ms()
    async with Database(settings.database_url.get_secret_value(), application_name="tocsin-doctor") as database:
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
