"""``tocsin up``: everything on one machine, as supervised child processes.

Run as a module of its own with the options in order: data directory, host, port, schedulers, workers.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cli.console import Console
from cli.data_directory import DataDirectory, write_private
from cli.errors import UsageError, usage_errors_on_stderr
from cli.installation import Installation, UpOptions
from cli.log_line import readable
from cli.one_shot import run_to_end
from cli.supervisor import Child, ChildFailedError, RunningChild, Supervisor
from shared.domain.clock import Clock, SystemClock
from shared.embedded.errors import EmbeddedServerError

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_KILLED = 130

# One request to stop may arrive twice: sent to the whole process group, and passed on by make.
_ECHO_SECONDS = 1.0

_OWN_COMMAND = (sys.executable, "-P", "-m", "cli.main")


def up(options: UpOptions, environment: Mapping[str, str], console: Console, clock: Clock) -> int:
    """Run until a signal asks to stop; the exit code of the process.

    Raises ``UsageError`` for what the person at the terminal has to mend.
    """
    with DataDirectory.locked(options.data_directory) as directory:
        try:
            installation = Installation(options, environment, directory)
            return asyncio.run(_Session(installation, directory, console, clock).run())
        except EmbeddedServerError as error:
            raise UsageError(str(error)) from None


class _Session:
    """One run of everything, from the first process to the last."""

    def __init__(
        self, installation: Installation, directory: DataDirectory, console: Console, clock: Clock
    ) -> None:
        self._installation = installation
        self._directory = directory
        self._console = console
        self._announced: set[str] = set()
        self._supervisor = Supervisor(directory.logs, self, clock)
        self._clock = clock
        self._asked_to_stop_at: float | None = None
        self._killed = False
        self._has_key = False

    async def run(self) -> int:
        work = asyncio.create_task(self._work())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number, work)
        exit_code = EXIT_STOPPED
        try:
            await work
        except asyncio.CancelledError:
            pass
        except ChildFailedError as error:
            self._console.failure(
                f"{error}; its last lines, from {error.log_path}:", [readable(line) for line in error.log_lines]
            )
            exit_code = EXIT_FAILED
        finally:
            await self._supervisor.stop()
            if self._installation.postgres:
                self._installation.postgres.close()
        if self._killed:
            return EXIT_KILLED
        self._console.done("Stopped")
        return exit_code

    def _on_signal(self, number: signal.Signals, work: asyncio.Task[None]) -> None:
        now = self._clock.monotonic()
        if self._asked_to_stop_at is None:
            self._asked_to_stop_at = now
            self._console.event(f"{number.name}: stopping; once more to kill")
            work.cancel()
        elif now - self._asked_to_stop_at > _ECHO_SECONDS:
            self._killed = True
            self._supervisor.kill()

    async def _work(self) -> None:
        await self._start_servers()
        await self._fill()
        installation = self._installation
        stages = ([installation.api()], installation.schedulers(), installation.workers())
        await asyncio.gather(*(self._supervisor.start(*stage) for stage in stages))
        self._announce()
        await self._supervisor.watch()

    async def _start_servers(self) -> None:
        for server in (self._installation.postgres, self._installation.nats):
            if server:
                await server.prepare()
        await self._supervisor.start(*self._installation.servers())

    async def _fill(self) -> None:
        """Migrate the database and, at the first start, create who may log in."""
        environment = self._installation.environment()
        await run_to_end("migrate", (*_OWN_COMMAND, "migrate"), environment, self._directory.logs)
        self._console.done("Database is up to date")
        credentials = self._stored_credentials()
        if "api_key" not in credentials:
            # Our own database belongs to this directory alone: a lost file of credentials is made anew.
            renew = ("--or-renew",) if self._installation.postgres else ()
            command = (*_OWN_COMMAND, "bootstrap", *renew)
            output = await run_to_end("bootstrap", command, environment, self._directory.logs)
            credentials = json.loads(output) or {}
        self._has_key = "api_key" in credentials
        write_private(self._directory.credentials, {**credentials, "api_url": self._installation.api_url})

    def _stored_credentials(self) -> dict[str, str]:
        path = self._directory.credentials
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def _announce(self) -> None:
        url = self._installation.api_url
        credentials = _shown(self._directory.credentials)
        facts = [
            ("API", url),
            ("Docs", f"{url}/docs"),
            ("API key", f"{credentials} (api_key)" if self._has_key else "made where this database was set up"),
            ("Logs", _shown(self._directory.logs)),
        ]
        if self._installation.allows_private_targets:
            facts.append(("Targets", "private addresses too, as only this machine reaches the API"))
        self._console.block(
            "Tocsin is running. Ctrl-C stops it; data stay.",
            facts,
            next_command(url, credentials if self._has_key else None),
        )

    def child_ready(self, child: Child, seconds: float) -> None:
        label = self._label(child.name)
        if child.name in self._announced:
            self._console.event(f"{label} is ready again after {seconds:.1f} s")
        else:
            self._announced.add(child.name)
            self._console.done(f"{label} ready in {seconds:.1f} s")

    def child_ended(self, child: Child, cause: str, last_line: str, restart_in_seconds: float) -> None:
        said = f" ({readable(last_line)})" if last_line else ""
        self._console.event(f"{child.name} {cause}{said}; starting it again in {restart_in_seconds:g} s")

    def children_changed(self, running: Sequence[RunningChild]) -> None:
        try:
            write_private(self._directory.processes, [asdict(child) for child in running])
        except OSError as error:
            # A full disk must not end what runs.
            self._console.event(f"cannot write {self._directory.processes}: {error.strerror}")

    def _label(self, name: str) -> str:
        labels = {"postgres": f"PostgreSQL {self._installation.postgres_version}", "nats": "NATS", "api": "API"}
        return labels.get(name, name)


def _shown(path: Path) -> str:
    """The path as one would type it: relative where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def next_command(url: str, credentials: str | None) -> str:
    """The command to type next; without a file that holds a key, the key is left to fill in."""
    key = "YOUR-API-KEY" if credentials is None else f"$({_read_key(credentials)})"
    body = '{"name": "Example", "check": {"kind": "http", "url": "https://example.com"}}'
    return (
        f"Create a first monitor:\n\n"
        f"  curl {url}/v1/monitors -H 'Content-Type: application/json' \\\n"
        f"""    -H "Authorization: Bearer {key}" \\\n"""
        f"    -d '{body}'"
    )


def _read_key(credentials: str) -> str:
    return f"""sed -n 's/.*"api_key": "\\([^"]*\\)".*/\\1/p' {shlex.quote(credentials)}"""


def main(words: Sequence[str]) -> int:
    data_directory, host, port, schedulers, workers = words
    options = UpOptions(Path(data_directory), host, int(port), int(schedulers), int(workers))
    clock = SystemClock()
    with usage_errors_on_stderr():
        return up(options, os.environ, Console(sys.stdout, clock), clock)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
