"""Become a child process that ends with its parent and, started by root, runs as an ordinary user.

The file runs as a script before the real program: the kernel offers no way to ask for these things from outside,
and code between fork and exec in the parent itself would be unsafe. It imports the standard library only, so that
it costs some 25 ms.

The trap it avoids: PostgreSQL refuses to run as root, yet the data directory or the virtual environment may lie
under a folder that only root can enter. Opening that folder's permissions would change what is not ours; instead
the program keeps one capability, the smallest that lets it pass.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ = 23
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
# Without it access(2) ignores the capabilities of a process that is not root, and PostgreSQL asks access(2).
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522

EXIT_REFUSED = 126


@dataclass(frozen=True, slots=True)
class User:
    """Whom the program runs as."""

    uid: int
    gid: int


def wrap(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    user: User | None = None,
    needs: Sequence[Path] = (),
) -> tuple[str, ...]:
    """The command that runs ``command`` as a child of this process.

    ``death_signal`` reaches it when this process ends, however it ends. ``needs`` are the paths that ``user`` must
    be able to read beside the program itself.
    """
    identity = f"{user.uid}:{user.gid}" if user else "-"
    paths = os.pathsep.join(str(path) for path in needs)
    helper = (sys.executable, "-I", "-S", __file__)
    return (*helper, str(os.getpid()), str(int(death_signal)), identity, paths, *command)


def main(arguments: Sequence[str]) -> None:
    parent, death_signal, identity, paths, *command = arguments
    try:
        if identity != "-":
            uid, gid = identity.split(":")
            _become(User(int(uid), int(gid)), [command[0], *filter(None, paths.split(os.pathsep))])
        _end_with_parent(int(parent), int(death_signal))
        os.execv(command[0], command)  # noqa: S606 a shell is what we avoid; the caller gives a list
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error}\n")
        sys.exit(EXIT_REFUSED)


def _become(user: User, needs: Sequence[str]) -> None:
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.seteuid(user.uid)
    reachable = _reachable(needs)
    os.seteuid(0)
    if reachable:
        os.setresuid(user.uid, user.uid, user.uid)
    else:
        _become_with_capability(user, needs)


def _become_with_capability(user: User, needs: Sequence[str]) -> None:
    candidates = [cap for cap in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE) if _prctl(_PR_CAPBSET_READ, cap) == 1]
    _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
    os.setresuid(user.uid, user.uid, user.uid)
    for capability in candidates:
        _set_capabilities(effective=[capability], permitted=candidates)
        if _reachable(needs):
            _set_capabilities(effective=[capability], permitted=[capability])
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)
            return
    raise PermissionError(f"user {user.uid} cannot read {', '.join(needs)}, nor may it be given the right to")


def _reachable(needs: Sequence[str]) -> bool:
    program, *paths = needs
    # Asked of the effective user: while that one is tried out, the real user is still root.
    try:
        for path in (program, *paths):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    return os.access(program, os.X_OK, effective_ids=True)


def _set_capabilities(*, effective: Sequence[int], permitted: Sequence[int]) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    held = _mask(permitted)
    # Two blocks of (effective, permitted, inheritable); the capabilities above 31 are in the second.
    data = (ctypes.c_uint32 * 6)(_mask(effective), held, held, 0, 0, 0)
    _checked(_LIBC.capset(header, data))


def _mask(capabilities: Sequence[int]) -> int:
    return sum(1 << capability for capability in capabilities)


def _end_with_parent(parent: int, death_signal: int) -> None:
    # Last before exec: a change of user clears the setting.
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        sys.exit(EXIT_REFUSED)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *arguments: int) -> int:
    values = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_LIBC.prctl(option, *(ctypes.c_ulong(value) for value in values)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1:])
