"""``tocsin check``: run checks here and now, without any server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.errors import UsageError

if TYPE_CHECKING:  # the engine is loaded when the command runs, so that other commands start without it
    from cli.check_input import Job
    from monitoring_worker.probes.runner import CheckRunner
    from shared.domain.result import CheckVerdict

MAX_AT_ONCE = 50


def check(  # noqa: PLR0917 typer builds the command line from the parameters, by name
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="https://…, ssl://host:port?starttls=smtp, tcp://host:port?expect=^220, dns://name?type=MX, "
            "ping://host?count=5; quote what has a '?' or '&'.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="YAML file with one or more monitors.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: an object, or a list for several.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", "-t", help="Seconds for each attempt; 10 unless given.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", help="Further attempts before it is down; none unless given.")
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not verify the certificate.")] = False,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="Trust the roots in this PEM file.")] = None,
    method: Annotated[str | None, typer.Option("--method", "-X", help="HTTP method.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="'Name: value'; repeatable.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="Body of the request.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Expected status codes, as in 200-299,301.")
    ] = None,
    contains: Annotated[str | None, typer.Option("--contains", help="Text that the body has to contain.")] = None,
    no_redirects: Annotated[bool, typer.Option("--no-redirects", help="Judge a redirect itself.")] = False,
    ip: Annotated[str | None, typer.Option("--ip", help="4 or 6: use only this version of IP.")] = None,
) -> None:
    """Check targets once, without any server.

    Exits with 0 when all are up or degraded, with 1 when one is not, with 2 when the input cannot be used.
    """
    from cli.check_input import Options, jobs_of  # noqa: PLC0415 see TYPE_CHECKING above

    http = {"method": method, "headers": header, "body": data, "status": status, "contains": contains}
    options = Options(http, timeout, retries, no_verify=no_verify, no_redirects=no_redirects, ip=ip)
    jobs = jobs_of(targets or [], file, options)
    results = asyncio.run(_run(_runner(ca_file), jobs, as_json=as_json))
    raise typer.Exit(0 if all(result.verdict.status in {"up", "degraded"} for result in results) else 1)


def _runner(ca_file: Path | None) -> CheckRunner:
    from ipaddress import ip_network  # noqa: PLC0415

    from monitoring_worker.probes.runner import CheckRunner  # noqa: PLC0415
    from shared.http.guard import AddressPolicy  # noqa: PLC0415

    if ca_file and not ca_file.is_file():
        raise UsageError(f"--ca-file {ca_file}: there is no such file")
    # Whoever types a command here can reach every address of this machine's networks anyway.
    anywhere = AddressPolicy(allow_private=True, allowed_networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    return CheckRunner(anywhere, ca_file=ca_file)


class Result(NamedTuple):
    """One job and what came of it."""

    job: Job
    started_ms: int
    verdict: CheckVerdict


async def _run(runner: CheckRunner, jobs: list[Job], *, as_json: bool) -> list[Result]:
    """Run all at once, show each as soon as it and those before it are done."""
    from cli.check_report import Printer  # noqa: PLC0415
    from shared.domain.clock import SystemClock  # noqa: PLC0415

    clock, places = SystemClock(), asyncio.Semaphore(MAX_AT_ONCE)

    async def run(job: Job) -> Result:
        async with places:
            return Result(job, clock.now_ms(), await runner.run(job.check, **job.options.model_dump()))

    printer = None if as_json else Printer()
    results = []
    for task in [asyncio.create_task(run(job)) for job in jobs]:
        results.append(await task)
        if printer:
            printer.show(results[-1].job.name, results[-1].verdict)
    if printer:
        printer.sum_up([result.verdict for result in results])
    else:
        _print_json(results)
    return results


def _print_json(results: list[Result]) -> None:
    shown = [_as_json(result) for result in results]
    json.dump(shown[0] if len(shown) == 1 else shown, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _as_json(result: Result) -> dict[str, Any]:
    """The shape of a result in the API; there is no monitor and no slot, so the start stands for the slot."""
    import msgspec  # noqa: PLC0415

    from shared.domain.clock import to_datetime  # noqa: PLC0415

    started = to_datetime(result.started_ms)
    place = {"target": result.job.name, "monitor_id": None, "region": "local"}
    times = msgspec.to_builtins({"scheduled_at": started, "started_at": started})
    return {**place, **times, **msgspec.to_builtins(result.verdict)}
