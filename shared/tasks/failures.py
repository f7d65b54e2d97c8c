"""What an error of an attempt means: its kind, whether another attempt may help, how long to wait for that.

Errors of HTTP clients are known by what they carry (``status_code`` and ``headers``, on the error itself or on its
``response``), so that no client is imported here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import msgspec
from pydantic import ValidationError

from shared.db.availability import is_unavailable
from shared.domain.comparison import well_formed
from shared.domain.redaction import scrub
from shared.domain.retry_after import retry_after
from shared.messaging.errors import MessagingError, PublishRejectedError
from shared.tasks.errors import GiveUp, RetryLater

MESSAGE_LIMIT: Final = 500
RETRY_AFTER_CAP_SECONDS: Final = 3600.0
"""However long the other side asks us to wait, we wait no longer than an hour."""

TIMEOUT: Final = "timeout"
CONNECTION: Final = "connection_error"
INVALID_ARGUMENT: Final = "invalid_argument"
WORKER_LOST: Final = "worker_lost"
UNDECODABLE: Final = "undecodable"
UNKNOWN_TASK: Final = "unknown_task"
REFUSED: Final = "refused"
GAVE_UP: Final = "gave_up"
RETRY_LATER: Final = "retry_later"

_RETRIED_STATUSES: Final = frozenset({408, 425, 429})
_CONNECTION_ERRORS: Final = (ConnectionError, socket.gaierror, asyncio.IncompleteReadError, MessagingError)
_KINDS: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    ((GiveUp,), GAVE_UP),
    ((RetryLater,), RETRY_LATER),
    ((TimeoutError,), TIMEOUT),
    ((msgspec.ValidationError, ValidationError), INVALID_ARGUMENT),
    (_CONNECTION_ERRORS, CONNECTION),
)
_WRONG_PATHS: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_LASTING: Final = (GiveUp, PublishRejectedError, *_WRONG_PATHS)


def is_passing(error: BaseException) -> bool:
    """Whether an attempt that failed with ``error`` may succeed later, as long as nobody says otherwise.

    Timeouts, lost connections, an absent database or queue, and the HTTP statuses 408, 425, 429 and 5xx pass;
    everything else, as a wrong argument or a fault in our own code, fails the same way each time.
    """
    if isinstance(error, _LASTING):
        return False
    if isinstance(error, (RetryLater, TimeoutError, *_CONNECTION_ERRORS)):
        return True
    if (status := status_of(error)) is not None:
        return status >= 500 or status in _RETRIED_STATUSES
    return is_unavailable(error)


def kind_of(error: BaseException) -> str:
    """A short word for tables and filters: one of this module's, ``http_<status>``, or the name of the class."""
    for classes, kind in _KINDS:
        if isinstance(error, classes):
            return kind
    status = status_of(error)
    return type(error).__name__ if status is None else f"http_{status}"


def message_of(error: BaseException) -> str:
    """What is kept of the error's text: one line, bounded, storable, without the secrets that URLs carry."""
    text = scrub(" ".join(well_formed(str(error)).split())) or type(error).__name__
    return text if len(text) <= MESSAGE_LIMIT else f"{text[: MESSAGE_LIMIT - 1]}…"


def status_of(error: BaseException) -> int | None:
    """The HTTP status that the error carries, if it carries one."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def requested_wait(error: BaseException, now_ms: int) -> float | None:
    """Seconds that the other side, or the task itself, asks to wait at least; capped, None when nobody asks."""
    seconds = error.after if isinstance(error, RetryLater) else retry_after(_headers_of(error), now_ms)
    return None if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_CAP_SECONDS)


def _headers_of(error: BaseException) -> dict[str, str]:
    for holder in (error, getattr(error, "response", None)):
        headers = getattr(holder, "headers", None)
        if isinstance(headers, Mapping):
            return {str(name): str(value) for name, value in headers.items()}
    return {}
