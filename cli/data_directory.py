"""Where ``tocsin up`` keeps everything between two runs: data, secrets, ports, logs."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.errors import UsageError

LAYOUT = 1

# Below the range from which the kernel takes ports for outgoing connections: those would be lost to a child that
# restarts. Above the well-known services.
_PORTS = range(20_000, 32_000)


def write_private(path: Path, document: object) -> None:
    """Replace ``path`` by the document as JSON, for its owner only; a reader sees the old one or the new one."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.touch(mode=0o600)
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def is_running(path: Path) -> bool:
    """Whether ``tocsin up`` holds that directory; asked with a lock that two may share."""
    try:
        with (path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def demand_running(path: Path) -> None:
    """Raises ``UsageError`` when ``tocsin up`` does not hold that directory: its servers then can't be asked."""
    if not is_running(path):
        raise UsageError(f"nothing runs in {path}: start tocsin up --data-dir {path}")


class DataDirectory:
    """The folder of ``--data-dir``; get one from ``locked``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.credentials = root / "credentials.json"
        self.processes = root / "processes.json"
        self.logs = root / "logs"
        self.postgres = root / "postgres"
        self.nats = root / "nats"
        self._run = root / "run"
        self._secrets = root / "secrets"
        self._ports = root / "ports.json"
        self._version = root / "version"

    @classmethod
    @contextmanager
    def locked(cls, path: Path) -> Iterator[DataDirectory]:
        """Create the folder where needed and keep others out of it inside the block.

        Raises ``UsageError`` when it is in use, belongs to another user or cannot be written.
        """
        directory = cls(path.absolute())
        try:
            directory._create_folders()
            lock = os.open(directory.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"cannot write to {path}: {error.strerror}; choose another --data-dir") from None
        try:
            directory._take(lock)
            yield directory
        finally:
            os.close(lock)

    def ready_file(self, name: str) -> Path:
        return self._run / f"{name}.ready"

    def check_version(self, postgres_major: int | None) -> None:
        """Raise ``UsageError`` when another release of Tocsin or PostgreSQL wrote this folder.

        ``postgres_major`` is None when the database lies elsewhere.
        """
        found = _read(self._version) if self._version.exists() else {"layout": LAYOUT, "postgresql": postgres_major}
        ours = {"layout": LAYOUT, "postgresql": postgres_major or found.get("postgresql")}
        if found.get("layout") != LAYOUT or found.get("postgresql") not in {None, ours["postgresql"]}:
            raise UsageError(
                f"{self.root} holds {_describe(found)}, this Tocsin needs {_describe(ours)}: "
                "run the release that wrote it, or choose another --data-dir"
            )
        write_private(self._version, ours)

    def secret_values(self) -> Mapping[str, str]:
        """``secret_keys`` and ``nats_password``, made at the first start.

        Raises ``UsageError`` when they are lost. To be asked before ``check_version``, which ends a first start.
        """
        if not self._secrets.exists():
            if self._version.exists():
                raise UsageError(
                    f"{self._secrets} is missing, and with it the key to what is sealed in the database: "
                    "put it back, or choose another --data-dir"
                )
            names = ("secret_keys", "nats_password")
            write_private(self._secrets, {name: secrets.token_urlsafe(32) for name in names})
        return _read(self._secrets)

    def port(self, name: str, is_free: Callable[[int], bool]) -> int:
        """The port that ``name`` had before if that is free, else a free one, which is kept from now on."""
        kept = _read(self._ports) if self._ports.exists() else {}
        if isinstance(port := kept.get(name), int) and is_free(port):
            return port
        port = _choose_port(lambda number: number not in kept.values() and is_free(number))
        write_private(self._ports, kept | {name: port})
        return port

    def _create_folders(self) -> None:
        # Others may pass but not look: PostgreSQL runs as another user when we are root.
        self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
        if (owner := self.root.stat().st_uid) != os.geteuid():
            raise UsageError(f"{self.root} belongs to user {owner}: start tocsin as that user")
        for folder in (self.logs, self._run):
            folder.mkdir(mode=0o700, exist_ok=True)

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.root} is in use by another tocsin up: stop that one, or choose another --data-dir"
            ) from None


def _choose_port(is_good: Callable[[int], bool]) -> int:
    # From a random place on, so that two installations that start together seldom try the same one.
    start = secrets.randbelow(len(_PORTS))
    ports: list[int] = [*_PORTS[start:], *_PORTS[:start]]
    for port in ports:
        if is_good(port):
            return port
    raise UsageError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is damaged: put back a copy of it, or choose another --data-dir")
    return document


def _describe(version: Mapping[str, Any]) -> str:
    return f"layout {version.get('layout')} with PostgreSQL {version.get('postgresql')}"
