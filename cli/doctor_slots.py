"""``tocsin doctor --slots``: every slot that was due, against what is stored."""

from __future__ import annotations

import json
from datetime import datetime

import typer

from shared.db.session import Database
from shared.domain.audit import Books
from shared.domain.clock import Clock, to_datetime
from shared.domain.result import SlotKey
from shared.services.slot_audit import audit_since

_SHOWN = 1_000


async def audit(url: str, length_ms: int, clock: Clock, *, as_json: bool) -> int:
    """Print the books of the last ``length_ms``; 1 when a slot has no record. Raises ``DatabaseError``."""
    now_ms = clock.now_ms()
    async with Database(url, application_name="tocsin-doctor") as database:
        await database.verify()
        async with database.system() as session:
            books = await audit_since(session, now_ms - length_ms, now_ms)
    if as_json:
        typer.echo(_document(books))
    else:
        _print(books)
    return 1 if books.unaccounted else 0


def _print(books: Books) -> None:
    typer.echo(f"{books.due} slots were due and had their time; {len(books.unaccounted)} have no record")
    for key in books.unaccounted[:_SHOWN]:
        typer.echo(f"✘ {_moment(key)}  {key.region}  {key.monitor_id}  nothing is stored")
    for key in books.unscheduled[:_SHOWN]:
        typer.echo(f"· {_moment(key)}  {key.region}  {key.monitor_id}  stored, though it was not due")
    if books.unaccounted:
        typer.echo("The API stores lost slots as missed within a minute; if these stay, look at its log.")


def _document(books: Books) -> str:
    lists = {"unaccounted": books.unaccounted, "unscheduled": books.unscheduled}
    return json.dumps(
        {
            "due": books.due,
            **{
                name: [
                    {"monitor_id": str(key.monitor_id), "region": key.region, "scheduled_at": _moment(key)}
                    for key in keys
                ]
                for name, keys in lists.items()
            },
        },
        indent=2,
    )


def _moment(key: SlotKey) -> str:
    moment: datetime = to_datetime(key.slot_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
