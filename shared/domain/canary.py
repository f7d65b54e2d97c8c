"""Places that a worker must be able to reach: while it reaches none of them, it can't judge anybody else."""

from __future__ import annotations

from urllib.parse import urlsplit

from shared.domain.checks import HttpCheck, TcpCheck
from shared.domain.result import CheckVerdict, ResultStatus

DEFAULT_PORT = 443


def canary_check(text: str) -> HttpCheck | TcpCheck:
    """The check of a canary: a URL, ``host`` or ``host:port``. Raises ``ValueError`` for anything else."""
    try:
        if "://" in text:
            return HttpCheck.model_validate({"url": text})
        place = urlsplit(f"//{text}")
        return TcpCheck.model_validate({"host": place.hostname, "port": place.port or DEFAULT_PORT})
    except ValueError as error:  # pydantic's is one as well
        raise ValueError(f"{text!r} is no URL, host or host:port") from error


def is_reached(verdict: CheckVerdict) -> bool:
    """Whether somebody answered; what the answer says does not matter."""
    has_answer = verdict.http is not None and verdict.http.status_code is not None
    return has_answer or verdict.status in {ResultStatus.UP, ResultStatus.DEGRADED}
