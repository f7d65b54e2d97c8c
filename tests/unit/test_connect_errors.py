"""What the system says when a connection is not made: about the target, about the network, or about ourselves."""

from __future__ import annotations

import errno
import os

import pytest

from shared.http.errors import connect_error

IPV4, IPV6 = "192.0.2.1:443", "[2001:db8::1]:443"


@pytest.mark.parametrize(
    ("code", "where", "kind"),
    [
        (errno.ECONNREFUSED, IPV4, "connect_refused"),
        (errno.ETIMEDOUT, IPV4, "connect_timeout"),
        (errno.ECONNRESET, IPV4, "connection_reset"),
        (errno.ECONNABORTED, IPV4, "connection_reset"),
        (errno.EHOSTUNREACH, IPV4, "connect_unreachable"),
        (errno.ENETUNREACH, IPV6, "connect_unreachable"),
        (errno.EACCES, IPV4, "connect_unreachable"),
        (errno.EPERM, IPV4, "connect_unreachable"),
        (errno.EAFNOSUPPORT, IPV6, "connect_unreachable"),
        (errno.EADDRNOTAVAIL, IPV6, "connect_unreachable"),
    ],
)
def test_what_is_about_the_target_or_the_way_to_it(code: int, where: str, kind: str) -> None:
    failure = connect_error(OSError(code, os.strerror(code)), where)
    assert failure.error.kind == kind
    assert where in failure.error.message


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_never_held_against_the_target(code: int) -> None:
    with pytest.raises(OSError, match=os.strerror(code)):
        connect_error(OSError(code, os.strerror(code)), IPV4)
