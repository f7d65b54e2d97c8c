"""The one deadline of an attempt, and how its passing reads."""

from __future__ import annotations

from shared.domain.errors import CheckError, ErrorKind
from shared.http.stopwatch import Phase

_WORDING = {
    Phase.DNS: "while resolving the name",
    Phase.CONNECT: "while connecting",
    Phase.TLS: "during the TLS handshake",
    Phase.FIRST_BYTE: "while waiting for the first byte of the answer",
    Phase.TRANSFER: "while receiving the answer",
}
_KINDS = {Phase.DNS: ErrorKind.DNS_TIMEOUT, Phase.CONNECT: ErrorKind.CONNECT_TIMEOUT}


def timed_out(phase: Phase | None, timeout_seconds: float) -> CheckError:
    """The error of an attempt whose time ran out in this phase."""
    where = _WORDING[phase] if phase else "between two requests"
    kind = _KINDS.get(phase, ErrorKind.TIMEOUT) if phase else ErrorKind.TIMEOUT
    return CheckError(kind, f"timed out after {timeout_seconds:g} s {where}")
