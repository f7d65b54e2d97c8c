"""``tocsin doctor``: is this installation whole? Names each fault and its mend."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import UsageError

_SPAN = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def doctor(
    slots: Annotated[bool, typer.Option("--slots", help="Compare due slots with stored results instead.")] = False,
    since: Annotated[str, typer.Option(help="How far back --slots looks: 30m, 1h, 2d.")] = "1h",
    servers: Annotated[
        bool, typer.Option("--servers", help="Only settings and servers: what has to hold before a process starts.")
    ] = False,
    data_dir: Annotated[Path, typer.Option(help="Of tocsin up, when TOCSIN_DATABASE_URL is not set.")] = Path(
        ".tocsin"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this installation: name each fault and its mend.

    Exits with 0 when nothing is wrong, with 1 at any fault or warning, with 2 when the input cannot be used.
    """
    from cli import doctor_place  # noqa: PLC0415 kept out of the start of other commands
    from cli.data_directory import demand_running  # noqa: PLC0415
    from shared.observability.logging import configure_logging  # noqa: PLC0415

    length_ms = parse_span(since)
    is_ours = not os.environ.get("TOCSIN_DATABASE_URL")
    # Settings are read from the environment, wherever they come from.
    os.environ.update(doctor_place.environment_of(data_dir, os.environ))
    # What is logged on the way is said once more, and better, as a finding.
    configure_logging("console", "CRITICAL")
    if slots:
        if is_ours:
            demand_running(data_dir)
        raise typer.Exit(_slots(length_ms, as_json=as_json))
    raise typer.Exit(_all(data_dir if is_ours else None, servers_only=servers, as_json=as_json))


def parse_span(text: str) -> int:
    """``30m``, ``1h``, ``2d`` in milliseconds; raises ``UsageError``."""
    found = _SPAN.fullmatch(text.strip())
    if not found or int(found[1]) == 0:
        raise UsageError(f"--since {text}: write a number and s, m, h or d, as in 1h")
    return int(found[1]) * _UNITS[found[2]]


def _all(data_dir: Path | None, *, servers_only: bool, as_json: bool) -> int:
    from cli.doctor_report import document, is_sound, lines  # noqa: PLC0415
    from cli.doctor_run import Examination  # noqa: PLC0415
    from shared.domain.clock import SystemClock  # noqa: PLC0415

    outcomes = asyncio.run(Examination(os.environ, data_dir, SystemClock(), servers_only=servers_only).run())
    typer.echo(document(outcomes) if as_json else "\n".join(lines(outcomes)))
    return 0 if is_sound(outcomes) else 1


def _slots(length_ms: int, *, as_json: bool) -> int:
    from cli.doctor_slots import audit  # noqa: PLC0415
    from shared.db.errors import DatabaseError  # noqa: PLC0415
    from shared.domain.clock import SystemClock  # noqa: PLC0415

    try:
        return asyncio.run(audit(os.environ["TOCSIN_DATABASE_URL"], length_ms, SystemClock(), as_json=as_json))
    except DatabaseError as error:
        raise UsageError(str(error)) from None
