"""Failures of the target, or of the way to it. They end an exchange early and become data at its edge.

HttpError
├── TargetError      the target (or the name service, the network, its certificate) failed
└── BlockedError     an address policy of this installation forbids the connection
"""

from __future__ import annotations

import errno
import socket

from shared.domain.errors import CheckError, ErrorKind


class HttpError(Exception):
    """The base; ``error`` is what the result will carry."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.error = CheckError(kind, message)


class TargetError(HttpError):
    """The target, or something between us and it, did not do its part."""


class BlockedError(HttpError):
    """The target is one that this installation does not connect to."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.BLOCKED_TARGET, message)


class OverloadedError(Exception):
    """There is more to do than this process can: nothing was seen of the target, or held against it."""


_UNREACHABLE = frozenset(
    {
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.ENETDOWN,
        errno.EAFNOSUPPORT,
        errno.EINVAL,
        errno.EACCES,
        errno.EPERM,
    }
)
_RESET = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


def connect_error(error: OSError, where: str) -> TargetError:
    """Why a TCP connection was not made."""
    if error.errno == errno.ECONNREFUSED:
        return TargetError(ErrorKind.CONNECT_REFUSED, f"{where} refused the connection")
    if error.errno == errno.ETIMEDOUT:
        return TargetError(ErrorKind.CONNECT_TIMEOUT, f"{where} did not answer the connection attempt")
    if error.errno in _RESET:
        return TargetError(ErrorKind.CONNECTION_RESET, f"{where} reset the connection while it was made")
    # For IPv4 the last one means that our ports are used up; for IPv6, that this machine has no such address.
    if error.errno in _UNREACHABLE or (error.errno == errno.EADDRNOTAVAIL and where.startswith("[")):
        return TargetError(ErrorKind.CONNECT_UNREACHABLE, f"{where} cannot be reached: {error.strerror}")
    raise error  # out of file descriptors or memory: ours, and never evidence against the target


def reset_error(error: OSError) -> TargetError:
    """Why an established connection broke."""
    return TargetError(ErrorKind.CONNECTION_RESET, f"the connection was reset ({error.strerror or error})")


_NAME_ERRORS = {
    socket.EAI_NONAME: (ErrorKind.DNS_NXDOMAIN, "does not exist"),
    socket.EAI_NODATA: (ErrorKind.DNS_NO_DATA, "has no address of this family"),
    socket.EAI_ADDRFAMILY: (ErrorKind.DNS_NO_DATA, "has no address of this family"),
}


def name_error(error: OSError, host: str) -> TargetError:
    """Why a name has no address."""
    kind, wording = _NAME_ERRORS.get(
        error.errno or 0, (ErrorKind.DNS_FAILURE, f"could not be resolved: {error.strerror or error}")
    )
    return TargetError(kind, f"{host} {wording}")
