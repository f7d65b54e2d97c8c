"""What ``tocsin up`` keeps between two runs, and whom it keeps out."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli.data_directory import DataDirectory, write_private
from cli.errors import UsageError
from cli.readiness import is_free


def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        DataDirectory.locked(tmp_path),
        pytest.raises(UsageError, match="in use by another tocsin up"),
        DataDirectory.locked(tmp_path),
    ):
        pass


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with DataDirectory.locked(tmp_path):
            pass


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with DataDirectory.locked(tmp_path):
        child = subprocess.Popen(
            (sys.executable, "-c", "print('started', flush=True); input()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
    try:
        with DataDirectory.locked(tmp_path):
            pass
    finally:
        child.communicate(b"\n")


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"cannot write to .*file/data: Not a directory; choose another --data-dir"),
        DataDirectory.locked(tmp_path / "file" / "data"),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder for somebody else")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to user 12345"), DataDirectory.locked(tmp_path):
        pass


def test_secrets_are_made_once_and_for_their_owner_only(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first = directory.secret_values()
    assert len(first["secret_keys"]) >= 32
    assert directory.secret_values() == first
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o600


def test_lost_secrets_are_not_replaced_behind_the_back_of_the_database(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.secret_values()
    directory.check_version(18)
    (tmp_path / "secrets").unlink()
    with pytest.raises(UsageError, match="put it back"):
        directory.secret_values()


def test_another_postgresql_is_refused_with_both_versions(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.check_version(18)
    directory.check_version(18)
    with pytest.raises(UsageError, match="with PostgreSQL 18, this Tocsin needs layout 1 with PostgreSQL 19"):
        directory.check_version(19)


def test_a_database_elsewhere_leaves_the_choice_open(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.check_version(None)
    directory.check_version(18)
    directory.check_version(None)
    with pytest.raises(UsageError):
        directory.check_version(19)


def test_another_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version").write_text(json.dumps({"layout": 2, "postgresql": 18}))
    with pytest.raises(UsageError, match="holds layout 2"):
        DataDirectory(tmp_path).check_version(18)


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets").write_text(content)
    with pytest.raises(UsageError, match=r"secrets is damaged"):
        DataDirectory(tmp_path).secret_values()


def test_ports_are_kept_and_differ(tmp_path: Path) -> None:
    names = ("api", "nats", "worker-1")
    free = {20_000, 25_000, 31_999}
    first = [DataDirectory(tmp_path).port(name, lambda port: port in free) for name in names]
    assert set(first) == free
    assert [DataDirectory(tmp_path).port(name, lambda _: True) for name in names] == first


def test_no_free_port_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no free port"):
        DataDirectory(tmp_path).port("api", lambda _: False)


def test_a_kept_port_that_another_program_took_is_replaced(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first = directory.port("api", lambda _: True)
    second = directory.port("api", lambda port: port != first)
    assert second != first
    assert directory.port("api", lambda _: True) == second


def test_a_port_is_free_unless_somebody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free("127.0.0.1", server.getsockname()[1])
        port = server.getsockname()[1]
    assert is_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="Cannot assign requested address"):
        is_free("192.0.2.1", 20_000)


def test_a_private_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, {"api_key": "ü"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"api_key": "ü"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["credentials.json"]
