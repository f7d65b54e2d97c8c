"""Whether an error means that PostgreSQL is away, as opposed to refusing what it was asked."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from shared.db.errors import is_content_fault, sqlstate

# Connection, lost races, resources, locked objects, operator intervention (shutdown, timeout), system error.
_PASSING_CLASSES = ("08", "40", "53", "55", "57", "58")
_READ_ONLY = "25006"


def is_unavailable(error: BaseException) -> bool:
    """Whether the server cannot serve now, so that trying again later may help."""
    if isinstance(error, OSError | PoolTimeoutError):
        return True
    if not isinstance(error, DBAPIError) or is_content_fault(error):
        return False
    if state := sqlstate(error):
        return state == _READ_ONLY or state.startswith(_PASSING_CLASSES)
    if error.connection_invalidated:
        return True
    # The driver says in the same class that a connection is gone and that it was used wrongly, which is for ever.
    return isinstance(error, InterfaceError) and "connection" in str(error.orig)
