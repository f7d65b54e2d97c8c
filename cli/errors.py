"""What keeps a command from doing its work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_USAGE = 2


class UsageError(Exception):
    """One line for the person at the terminal: the problem and its mend. Exit code 2."""


@contextmanager
def usage_errors_on_stderr() -> Iterator[None]:
    """End the process with one line where ``UsageError`` is raised inside."""
    try:
        yield
    except UsageError as error:
        sys.stderr.write(f"tocsin: {error}\n")
        sys.exit(EXIT_USAGE)
