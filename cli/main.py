"""The command ``tocsin``. Each command imports what it needs when it runs, so that each starts quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli.check import check
from cli.dead_letters import app as dead_letters
from cli.doctor import doctor
from cli.errors import UsageError, usage_errors_on_stderr
from cli.jobs import jobs

app = typer.Typer(
    name="tocsin",
    help="A monitoring backend that never goes blind.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 see the module's docstring

        typer.echo(f"tocsin {version('tocsin')}")
        raise typer.Exit


@app.callback()
def _tocsin(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="Where data, logs and credentials live.")] = Path(".tocsin"),
    host: Annotated[str, typer.Option(help="Address the API listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 picks a free one.")] = 8000,
    schedulers: Annotated[int, typer.Option(min=1, max=9, help="Schedulers: one leads, the others stand by.")] = 2,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Workers: they run the checks.")] = 1,
) -> None:
    """Run all of Tocsin on this machine.

    Starts NATS, PostgreSQL, the API, schedulers and workers, and starts again what ends. Ctrl-C stops all of it;
    data stay. TOCSIN_DATABASE_URL and TOCSIN_NATS_URL name servers to use instead of its own.
    """
    # In a new interpreter: what reading the command line has loaded would double the supervisor's memory for good.
    words = (str(data_dir), host, str(port), str(schedulers), str(workers))
    os.execv(sys.executable, (sys.executable, "-P", "-m", "cli.up", *words))  # noqa: S606 no shell wanted


@app.command()
def api() -> None:
    """Run one API process.

    Everything is set by environment variables: see docs/configuration.md.
    """
    from api.main import main as run  # noqa: PLC0415

    _run(run)


@app.command()
def scheduler() -> None:
    """Run one scheduler process.

    Everything is set by environment variables: see docs/configuration.md.
    """
    from monitoring_scheduler.main import main as run  # noqa: PLC0415

    _run(run)


@app.command()
def worker(
    region: Annotated[str | None, typer.Option(help="Region whose checks it runs; else TOCSIN_REGION.")] = None,
) -> None:
    """Run one worker process.

    Everything else is set by environment variables: see docs/configuration.md.
    """
    from monitoring_worker.main import main as run  # noqa: PLC0415

    _run(lambda: run(region=region))


@app.command()
def migrate() -> None:
    """Bring the database's schema up to date.

    The database is that of TOCSIN_DATABASE_URL.
    """
    from shared.db.engine import parse_url  # noqa: PLC0415
    from shared.db.errors import DatabaseUnusableError  # noqa: PLC0415
    from shared.db.migrate import main as run  # noqa: PLC0415

    try:
        parse_url(os.environ.get("TOCSIN_DATABASE_URL", ""))
    except DatabaseUnusableError as error:
        raise UsageError(str(error)) from None
    _run(run)


app.command()(check)
app.command()(doctor)
app.add_typer(jobs)
app.add_typer(dead_letters)


@app.command(hidden=True)
def bootstrap(
    or_renew: Annotated[
        bool, typer.Option("--or-renew", help="Make a further key when there is one already.")
    ] = False,
) -> None:
    """Create the first organisation, its owner and an API key; print them as JSON."""
    from shared.services.bootstrap import main as run  # noqa: PLC0415

    _run(lambda: run(or_renew=or_renew))


def _run(command: Callable[[], int | None]) -> None:
    from shared.settings import ConfigurationError  # noqa: PLC0415

    try:
        raise typer.Exit(command() or 0)
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


def main() -> None:
    with usage_errors_on_stderr():
        app()


if __name__ == "__main__":
    main()
