"""``tocsin jobs``: the platform's own jobs, looked at and run straight on the servers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.errors import UsageError

if TYPE_CHECKING:
    from shared.jobs.outcome import JobOutcome
    from shared.services.jobs import JobView

jobs = typer.Typer(name="jobs", help="The platform's own jobs.", no_args_is_help=True, rich_markup_mode=None)

DataDir = Annotated[Path, typer.Option(help="Of tocsin up, when TOCSIN_DATABASE_URL is not set.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Answer = TypeVar("Answer")
_HERE = Path(".tocsin")
_DID_NOTHING = {
    "not_due": "is not due: nothing was done (--force runs it all the same)",
    "skipped": "is being run by another process: nothing was done",
}


@jobs.command("list")
def list_jobs(data_dir: DataDir = _HERE, as_json: AsJson = False) -> None:
    """Show every job: how it is doing, and when it succeeded last."""
    from cli.jobs_run import read_jobs  # noqa: PLC0415 kept out of the start of other commands

    found = _ask(data_dir, read_jobs)
    if as_json:
        typer.echo(json.dumps([job._asdict() for job in found], default=_json, indent=2))
    else:
        typer.echo("\n".join(table(found)))


@jobs.command("run")
def run_job(
    name: Annotated[str, typer.Argument(help="As tocsin jobs list shows it.")],
    force: Annotated[bool, typer.Option("--force", help="Run it although it is not due.")] = False,
    data_dir: DataDir = _HERE,
    as_json: AsJson = False,
) -> None:
    """Run a job now, if it is due; exits with 1 when it fails."""
    from cli.jobs_run import run_one  # noqa: PLC0415 kept out of the start of other commands

    outcome = _ask(data_dir, lambda: run_one(name, forced=force))
    if as_json:
        typer.echo(json.dumps(_document(outcome), indent=2))
    else:
        typer.echo(_sentence(outcome))
    did_nothing = outcome.status.value in _DID_NOTHING
    raise typer.Exit(0 if outcome.is_success or did_nothing else 1)


def _ask(data_dir: Path, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """What ``work`` answers on the servers of this installation; what keeps it from that is one line."""
    from cli.data_directory import demand_running  # noqa: PLC0415
    from cli.doctor_place import environment_of  # noqa: PLC0415
    from shared.db.errors import DatabaseError  # noqa: PLC0415
    from shared.jobs.errors import JobError  # noqa: PLC0415
    from shared.messaging.errors import MessagingError  # noqa: PLC0415
    from shared.observability.logging import configure_logging  # noqa: PLC0415
    from shared.services.errors import ServiceError  # noqa: PLC0415
    from shared.settings import ConfigurationError  # noqa: PLC0415

    is_ours = not os.environ.get("TOCSIN_DATABASE_URL")
    # Settings are read from the environment, wherever they come from.
    os.environ.update(environment_of(data_dir, os.environ))
    if is_ours:
        demand_running(data_dir)
    configure_logging("console", "ERROR")
    try:
        return asyncio.run(work())
    except (DatabaseError, MessagingError, JobError, ServiceError, ConfigurationError) as error:
        raise UsageError(str(error)) from None


def table(found: Sequence[JobView]) -> list[str]:
    """A line for each job under a head; the last column says why the last run failed."""
    head = ("JOB", "EVERY", "LAST SUCCESS", "STATUS", "RUNS", "FAILED", "SKIPPED", "LAST ERROR")
    rows = [head] + [
        (
            job.name,
            _span(job.every_seconds),
            job.last_success_at.strftime("%Y-%m-%d %H:%M:%SZ") if job.last_success_at else "never",
            ("silent, " if job.silent else "") + (job.last_status or "not run yet"),
            str(job.runs),
            str(job.failures),
            str(job.skipped),
            " ".join((job.last_error or "").split()),
        )
        for job in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]


def _span(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _sentence(outcome: JobOutcome) -> str:
    if nothing := _DID_NOTHING.get(outcome.status.value):
        return f"{outcome.name} {nothing}"
    text = f"{outcome.name} {outcome.status.value} after {outcome.duration_ms / 1000:.2f} s"
    text += f"; {outcome.processed} processed"
    return f"{text}: {outcome.error}" if outcome.error else text


def _document(outcome: JobOutcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "status": outcome.status.value,
        "duration_ms": outcome.duration_ms,
        "processed": outcome.processed,
        "error": outcome.error,
    }


def _json(value: Any) -> str:
    return str(value.isoformat()).replace("+00:00", "Z")
