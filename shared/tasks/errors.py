"""What can go wrong in the layer of tasks, and what a task says about its own failure.

TaskError
├── DeclarationError       a task is declared in a way that would fail later; raised at import
├── ArgumentTooLargeError  an argument that no message and no dead letter can hold
├── JournalConflictError   another worker took the task over meanwhile
├── UnreadableJournalError a newer release wrote this journal
├── LetterNotFoundError    no dead letter with this id
└── ReplayRefusedError     the queue does not take a replayed message just now

TaskSignal
├── RetryLater             the attempt failed: try again
└── GiveUp                 the attempt failed: never try again
"""

from __future__ import annotations


class TaskError(Exception):
    """Base of what this package raises."""


class DeclarationError(TaskError):
    """A declaration that cannot work; the message says the mend."""


class ArgumentTooLargeError(TaskError, ValueError):
    """The argument of a task exceeds the limit: put large content elsewhere and send where it lies."""


class JournalConflictError(TaskError):
    """The journal changed since it was read: somebody else works on this task."""


class UnreadableJournalError(TaskError):
    """The journal of a task has a form that this release does not know."""


class LetterNotFoundError(TaskError):
    """There is no dead letter with this id, or it belongs to somebody else."""


class ReplayRefusedError(TaskError):
    """A dead letter could not be sent again; it stays where it is."""


class TaskSignal(Exception):  # noqa: N818 a decision of the task, like StopIteration
    """Raised by a task to decide about its next attempt itself."""


class RetryLater(TaskSignal):
    """The attempt failed and the next, ``after`` seconds later or as the policy says, may succeed.

    It counts as an attempt, and the wait is capped like that of a ``Retry-After`` header.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class GiveUp(TaskSignal):
    """No attempt will ever succeed: the task becomes a dead letter at once."""
