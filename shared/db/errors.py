"""What this package raises, and what it means when PostgreSQL refuses."""

from __future__ import annotations


class DatabaseError(Exception):
    """The root of this package's errors."""


class DatabaseUnusableError(DatabaseError):
    """The server cannot be worked with; the message is one line and names the mend."""

    def __init__(self, problem: str, mend: str) -> None:
        self.problem, self.mend = problem, mend
        super().__init__(f"{problem}: {mend}")


class MigrationError(DatabaseError):
    """A migration could not be applied; the message is one line and names the mend."""


# Data exception, integrity violation, program limit exceeded: the same rows will be refused again.
_CONTENT_CLASSES = ("22", "23", "54")


def sqlstate(error: BaseException) -> str:
    """The five characters by which PostgreSQL names an error, or nothing when the server did not answer."""
    # Asked of the attribute and not of the type, so that a process without a database need not load its driver.
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def is_content_fault(error: BaseException) -> bool:
    """Whether what was sent is at fault (bad data, violated constraint), so that trying again can't help."""
    return sqlstate(error).startswith(_CONTENT_CLASSES) or _is_unencodable(error)


def is_missing_partition(error: BaseException) -> bool:
    """Whether a row found no partition to be stored in; PostgreSQL has no code of its own for that."""
    return sqlstate(error) == "23514" and "no partition" in str(error)


def _is_unencodable(error: BaseException) -> bool:
    """Whether the driver could not even encode a value (a number out of range, half a surrogate pair)."""
    cause = getattr(getattr(error, "orig", None), "__cause__", None)
    return type(cause).__name__ == "DataError"
